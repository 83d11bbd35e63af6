"""What people see: each report in words and columns, for a terminal and, as far as it is shared, for the page.

Belongs here: finished sentences, tables, colours, and the forms of `-o json` that are not a report's own. Does not
belong here: what is said (`core/reports`), where it is read from (`files`, `cluster`), HTML (`console`).

    explanation  what is said of one pod, in finished sentences
    difference   its lines before and after, with the rules they come from
    terminal     an explanation, painted for a terminal
    inventory    what nodes have and pods ask, as tables
    tenants      what tenants hold of what they may, as tables and for scripts
    survey       the Cluster document that fits a cluster, with comments
    rules        what a directory of rules holds, in numbers and for scripts
    manifest     objects for the API server as YAML
    checkup      the checks of an installation, as a table and for scripts
    table        columns, and the numbers in them
"""
