"""What people type and what they read: a file is a case, and its name is the sentence that it proves.

    $ cat > tenants.yaml <<'YAML'         any command of a shell, in an empty folder
    ...
    YAML
    $ gpu-webhook explain - <<'YAML'      the command, in this process; - is the text up to YAML
    ...
    YAML
    Pod train                             what it prints; lines of standard error begin with "2> "
    [1]                                   its exit code, where it is not 0

The folder holds the shipped rules as `shipped`, and three made-up back ends as `made-up` and, if no --rules says
otherwise, as `rules`. To add a case write the commands, run `python -m tests.transcripts --write`, and read what it
wrote: it is what the command prints, which is not yet what it should print.
"""
