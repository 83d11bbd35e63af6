"""Documents in, a rulebook out: the form of every rule kind, and what is said about one that is wrong.

Belongs here: keys, types, closed sets of words, inheritance, parameters. Does not belong here: YAML (that is
`webhook.documents`), and what a rule does (that is `webhook.core.amounts`, `translate` and `inject`).
"""
