"""Reach: on the nodes of which back ends a pod may run, by its own node selection.

One of a resource may be a whole device on the nodes of one back end, and a share on those of another. The lines by
which a rule selects its nodes tell them apart, so a pod that is bound to such nodes gets what that back end gives.
Any other pod may get the most that any of them gives. Nothing else binds a pod: a taint brings no pod to a node, and
a node's name does not tell its labels. The kubelet holds a pod with `spec.nodeName` to its node selection, too
(pkg/kubelet/lifecycle/predicate.go, generalFilter).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from webhook.core.backends import cards
from webhook.core.kube import node_affinity
from webhook.core.kube.node_affinity import Bounds, Requirement
from webhook.core.kube.pod import Pod
from webhook.core.plan import text
from webhook.core.plan.choose import Assignment
from webhook.core.rules.outputs import Constant, Output
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Violation


@dataclass(frozen=True)
class Reach:
    """The nodes that one pod may run on. Answers are cached: it may have many containers and many terms."""

    pod: Pod
    rulebook: Rulebook
    _left: dict[object, bool] = field(default_factory=dict)

    @property
    def selects(self) -> bool:
        """Whether the pod selects its nodes at all."""
        return node_affinity.selects(self.pod)

    def leaves(self, served: Assignment) -> bool:
        """Whether the pod's own node selection leaves any node of a back end, whatever card is asked for."""
        if not served.mode.outputs.node_affinity or not self.selects:
            return True
        which = (served.backend.name, id(served.mode), served.request.models, served.request.profile)
        if which not in self._left:
            self._left[which] = not self.excludes(served, served.mode.outputs.node_affinity)
        return self._left[which]

    def excludes(self, served: Assignment, keys: Iterable[str]) -> bool:
        """Whether the pod excludes the nodes that the constants among these lines of a rule ask for."""
        lines = served.mode.outputs.node_affinity
        wanted = requirements(served, {key: lines[key] for key in keys if not lines[key].what}, self.rulebook)
        return any(isinstance(found, Violation) for found in node_affinity.require(self.pod, wanted))

    def stays_with(self, served: Assignment) -> bool:
        """Whether every node that the pod may run on is of the back end; False where no label tells its nodes."""
        pool = self.pool(served) if self.selects else ()
        return bool(pool) and all(node_affinity.within(self._bounds, wanted) for wanted in pool)

    def stays_on_card(self, served: Assignment) -> bool:
        """Whether every node that the pod may run on has a card that is asked for; False if no label tells cards."""
        lines = {key: line for key, line in served.mode.outputs.node_affinity.items() if key not in served.mode.pool}
        wanted = list(requirements(served, lines, self.rulebook)) if self.selects else ()
        return bool(wanted) and all(node_affinity.within(self._bounds, one) for one in wanted)

    def pool(self, served: Assignment) -> Sequence[Requirement]:
        """What tells the back end's nodes from those of others; empty if no label does."""
        return list(requirements(served, served.mode.pool, self.rulebook))

    @cached_property
    def _bounds(self) -> Bounds:
        return node_affinity.bounds(self.pod)


def requirements(served: Assignment, lines: Mapping[str, Output], rulebook: Rulebook) -> Iterator[Requirement]:
    """What these lines of a rule require of the nodes; a line without a value requires nothing."""
    for key, output in lines.items():
        values = text.texts(output, served, rulebook)
        if values or (isinstance(output, Constant) and output.value == ()):
            labels = tuple(map(cards.as_label, values))
            yield Requirement(key, labels, output.rule, served.asked.container.name)
