"""The form of rules once more, as JSON Schema (draft 2020-12), so that editors complete, explain and check.

Belongs here: what each key means, in the words that an editor shows. Does not belong here: what decides, which is
`webhook.core.schema`; the modules here are named after those that read the same. Tests hold the two together: every
key that is read is described, every word is one that is read, and no rule that loads is marked as wrong.
"""
