"""What tells people: each subcommand of `gpu-webhook` is a module; `gpu-webhook explain` is `explain.py`.

Belongs here: of each subcommand its question, the record that answers it, its text and its JSON. Does not belong
here: a decision (`webhook.core`). Programs (`server`, `settler`, `watcher`) do not import this package: it would
stay in their memory. The server loads two of its modules, those of advice, when they are first asked for.
"""
