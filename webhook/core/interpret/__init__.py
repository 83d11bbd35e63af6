"""From a pod to requests: what each container asks for, with the field path of every word.

Belongs here: the places where a request may be written, which of them wins, and what contradicts. Does not belong
here: which back end serves a request (`webhook.core.plan`).
"""
