"""Two duties take their turns."""

import json
from collections.abc import Sequence

from certs.activation import WANTED, Activator, addresses
from certs.api import ApiError, Object
from certs.rotation import Rotator
from certs.turns import Duty, Problem, Status, turn
from tests.certs.town import SITE, TERMS, Town

MUTATING, VALIDATING = SITE.configurations.values()
RULES = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*"}]


class Answered(Activator):
    """An activator that hears from every API server that replicas answer."""

    async def unanswered(self, webhook: str, configuration: str) -> Sequence[Problem]:  # noqa: ARG002 - all of them
        return []


class Answering(Town):
    """A town whose replicas answer every API server."""

    @property
    def rules(self) -> object:
        """Of the mutating webhook."""
        return self.objects[MUTATING]["webhooks"][0].get("rules")

    def want(self, rules: object) -> None:
        """Apply a mutating configuration with these rules in its annotation."""
        annotations = {WANTED: json.dumps({"mutate.gpu-webhook.io": rules})}
        self.store(MUTATING, {**self.objects[MUTATING], "metadata": {"annotations": annotations}})

    def turn(self, *duties: Duty) -> Sequence[Problem]:
        """The problems after a turn of each duty."""
        status = Status()
        turning = turn(status, [*duties, Answered(self, SITE, status).turn])
        while True:
            try:
                turning.send(None)
            except StopIteration:
                return status.problems


class Sealed(Answering):
    """A town whose Secrets cannot be read: what decrypts them is away."""

    async def find(self, path: str) -> Object | None:
        if "/secrets/" in path:
            raise ApiError(path)
        return await super().find(path)


def test_webhooks_get_their_rules_while_no_secret_can_be_read() -> None:
    town = Sealed()
    town.want(RULES)

    problems = town.turn(Rotator(town, SITE, TERMS, Status()).turn)

    assert problems == [Problem("cluster", "", SITE.serving)]
    assert town.rules == RULES


def test_new_rules_wait_for_the_end_of_a_rollout_and_those_that_ask_for_less_do_not() -> None:
    town = Answering()
    town.want(RULES)
    assert (town.turn(), town.rules) == ([], RULES)
    town.objects[SITE.deployment] = {"metadata": {"generation": 2}, "spec": {}, "status": {"observedGeneration": 1}}
    more, less = [{**RULES[0], "operations": ["CREATE", "UPDATE"]}], [{**RULES[0], "resources": []}]

    town.want(more)
    undone = "mutate.gpu-webhook.io: the former rules stay until no old replica of gpu-webhook is left: "
    why = f"{undone}its controller has not seen the change yet"
    assert (town.turn(), town.rules) == ([Problem("rollout", "mutating", why)], RULES)
    town.want(less)
    assert (town.turn(), town.rules) == ([], less)
    town.want(more)
    del town.objects[SITE.deployment]
    assert (town.turn(), town.rules) == ([], more)


def test_a_missing_configuration_is_told_also_where_others_issue_certificates() -> None:
    town = Answering()
    assert town.turn() == []
    del town.objects[VALIDATING]

    missing = (
        "there is no validating webhook configuration gpu-webhook: pods are admitted unseen; apply the manifests"
    )
    assert town.turn() == [Problem("configuration", "validating", missing)]


def test_what_two_duties_find_is_told_once() -> None:
    town = Answering()
    del town.objects[VALIDATING]

    problems = town.turn(Rotator(town, SITE, TERMS, Status()).turn)

    assert [each[:2] for each in problems] == [("configuration", "validating")]
    assert "This program has not seen it" in problems[0].why


def test_an_endpoint_without_a_port_is_no_address() -> None:
    named = {"endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"name": "https"}]}

    assert [*addresses(named)] == []
    assert [*addresses({**named, "ports": [{"name": "https", "port": 6443}]})] == [("192.0.2.1", 6443)]
