"""The container image: built with buildah from Debian's packages, looked into, and run before a real API server."""
