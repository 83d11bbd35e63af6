"""The part of a pod that rules and policies read, and how much of it there may be.

Belongs here: what is removed from a pod before anything decides about it, and the size at which a pod is refused.
Does not belong here: what is decided of the rest.

    projection  the allow-list of a rulebook, and pods pruned to it
    budget      how many of everything a pod that asks for a GPU may have
"""
