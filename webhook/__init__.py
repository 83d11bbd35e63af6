"""The admission server and the programs beside it: a pod says `gpu: "0.3"`, its cluster's GPU system is asked.

Belongs here: the pure core, and the shell around it (HTTP, files, the Kubernetes API, command line, pages). Does not
belong here: a vendor (a YAML document in `rules/`), and the certificate (`certs/`, a program of its own).

README.md beside this file has the picture of the rooms, and a paragraph for each.
"""
