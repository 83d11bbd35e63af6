"""The rule language: each kind of document as a frozen value with its form, and all of them together.

Belongs here: what a rule, a catalogue, a policy or a cluster may say, what it becomes, and which names it may use.
Does not belong here: what is done with it, which the rooms above know (`backends`, `plan`, `policy`), running the
examples of rules (`webhook.core.examples`), and files (`webhook.files`).
"""
