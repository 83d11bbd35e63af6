"""What the API server is told to ask us about; the package `policies` has what it refuses by itself.

Belongs here: which requests come to us, as rules and match conditions in CEL, and which namespaces are left out.
Does not belong here: certificates, which `certs` puts into the live objects, and where the server listens.

    conditions      match conditions, a superset of what a review may change or refuse
    configurations  the two objects
"""
