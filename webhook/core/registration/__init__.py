"""What the API server is told to ask us about, and what it refuses by itself.

Belongs here: which requests come to us, as rules and match conditions in CEL, and which namespaces are left out.
Does not belong here: certificates, which `certs` puts into the live objects, and where the server listens.
"""
