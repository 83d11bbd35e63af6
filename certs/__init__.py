"""The certificate program: makes and renews the pair that the admission server serves with.

A program of its own, so that the process which answers admission holds no signing code and no right to write
Secrets: `webhook` and `certs` import nothing of each other, and meet in two files, tls.crt and tls.key.
"""
