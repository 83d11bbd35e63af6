"""Suspects: users and namespaces whose reservations came to nothing again and again, and what they may reserve.

A reservation costs its client nothing if the create is refused afterwards: its name is taken, a ResourceQuota or
another webhook refuses it. The API server tells nobody, so the reservation stands until no such create can be under
way any more. Three things bound what can be kept reserved in this way:

    a name that a pod has is not reserved for: the replica looks first, and answers as the API server would a moment
    later (`taken`, cluster/reservations.py). It may be taken after the look. Then the rest bounds it
    a user whose reservations in a namespace came to nothing twice within `FORGET` graces is suspect there, and so is
    a namespace whose users' did four times. After one is counted, only reservations made later can count again. So
    an overloaded API server, or a client that hangs up, makes nobody suspect at once
    all suspects of a tenant together reserve at most one PARTth of each limit, and of the room for reservations. Any
    other user may reserve the rest

A pod of another UID that has the name of a reservation does not end it, however late that pod was created. The API
server reviews a create first and looks at the name last, in etcd, up to 34 s later:

    the review of `b` reserves, and its create is slow. That of `a`, of the same name, is fast: `a` is stored
    the settler sees `a`. It would drop what is reserved for `b`, and others get it
    `a` is deleted, by its user or by a StatefulSet. The create of `b` finds the name free: `b` is stored

So `a` proves nothing of the time when the create of `b` looks, and only the grace does. A law catches a settler that
drops at once (tests/laws/ledgers/faults.py). And a client that meets no other pod has more ways: a ResourceQuota
refuses pods of any name.

So a user keeps more than that part reserved without pods for three graces out of FORGET at most (the reservations of
the grace in which the user becomes suspect stand for one more), and all users of a namespace together for five. A
suspect still gets pods that fit into that part: a reservation whose pod comes is gone within a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

HABIT: Final = 2
"""How often reservations of a user come to nothing in a namespace until the user is suspect there."""

HABIT_OF_NAMESPACE: Final = 4
"""The same of all users of a namespace who are not suspect yet: anybody may have many names."""

MOST_SUSPECTS: Final = 8
"""Users of one namespace who are kept in mind; for others the namespace is blamed."""

FORGET: Final = 16
"""Graces until what came to nothing is forgotten."""

Suspects = Mapping[str, int]
"""How often reservations came to nothing, by `namespace author` and by namespace."""


def is_suspect(suspects: Suspects, namespace: str, author: str) -> bool:
    """Whether what an author reserves in a namespace is bounded."""
    of_author = suspects.get(f"{namespace} {author}", 0)
    return of_author >= HABIT or suspects.get(namespace, 0) >= HABIT_OF_NAMESPACE


def namespaces(suspects: Suspects) -> list[str]:
    """The namespaces in which what somebody reserves is bounded."""
    keys = (key.partition(" ") for key in suspects)
    return sorted({namespace for namespace, _, who in keys if is_suspect(suspects, namespace, who)})


def blamed(suspects: Suspects, namespace: str, author: str) -> list[str]:
    """Whom a reservation that came to nothing counts against: its author, first together with the namespace."""
    key = f"{namespace} {author}"
    known = [each for each in suspects if each.startswith(f"{namespace} ")]
    if key not in known and len(known) >= MOST_SUSPECTS:
        return [namespace]
    return [key] if suspects.get(key, 0) >= HABIT else [key, namespace]


def settled(suspects: Suspects, blamed: frozenset[str], forgiven: Collection[str]) -> Suspects:
    """The suspects after a settlement. New ones are added as far as there is room in their namespace."""
    after = {key: times + (key in blamed) for key, times in suspects.items() if key not in forgiven}
    room = Counter(key.partition(" ")[0] for key in after if " " in key)
    for key in sorted(blamed - suspects.keys()):
        namespace, of_author, _ = key.partition(" ")
        if not of_author or room[namespace] < MOST_SUSPECTS:
            after[key] = 1
            room[namespace] += bool(of_author)
    return after
