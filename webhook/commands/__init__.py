"""The commands of `gpu-webhook`, grouped by what they are for; `webhook.cli` puts them together.

Belongs here: the options of each command, and how it is run and printed. Does not belong here: what it does, which
is in the other rooms. Their modules are imported when a command runs, so that each command starts quickly.

    explaining  explain
    checking    check, schema
    seeing      inventory, tenants, survey
    rendering   render
    examining   doctor
    running     serve, console, settle, watch
    options     options that several commands have, exit codes, and the error of wrong usage
    streams     files and standard input; JSON out
"""
