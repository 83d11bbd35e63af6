"""Files that people and other programs write, read into the values of the core.

Belongs here: YAML, JSON, directories, what has changed on disk, and the one file that is written: the rulebook in the
user's cache folder. Does not belong here: what a document means (`core/rules`), and the API of a cluster.

    documents          YAML into nodes that know their lines, or into plain objects
    manifests          the input of `explain`: pods and other objects
    rule_files         a directory of rules into a rulebook, its examples executed
    rulebook_cache     the same, kept between the runs of a command
    file_stamps        whether files have changed
    reload             rules that are read again when they have
    surroundings       the file that `gpu-webhook watch` writes
    inventory_objects  nodes and pods
    survey_objects     what a survey looks at
    tenant_objects     policies, ledgers, exemptions and namespaces
    question           pods that a person asks about, answered by all that is given around them
"""
