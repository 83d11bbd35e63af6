"""Documents: how they are read, and what editors, CRDs and the reference say of them, from one declaration.

Belongs here: what any kind of document is made of. Does not belong here: a kind of document, which stands in `rules`,
and files, which are read by `webhook.files`. In reading order:

    document     a tree that knows the line and column of every key and value, and problems with it
    shape        what a value may look like: how it is read, and its JSON Schema
    form         a mapping, declared on the fields of the dataclass that it becomes
    labels       labels, annotations and selectors of Kubernetes, as shapes
    inheritance  `extends:` and `$(parameter)`, resolved before a document is read
"""
