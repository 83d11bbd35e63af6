"""Documents: how they are read, and what editors, CRDs and the reference say of them, from one declaration.

Belongs here: what any kind of document is made of. Does not belong here: a kind of document, which stands in `rules`,
and files, which are read by `webhook.files`.
"""
