"""Files that people and other programs write, read into the values of the core.

Belongs here: YAML, JSON, directories, what has changed on disk, and the one file that is written: the rulebook in the
user's cache folder. Does not belong here: what a document means (`core/rules`), and the API of a cluster.
"""
