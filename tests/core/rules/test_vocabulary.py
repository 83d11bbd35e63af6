"""The words of the rule language, and those who interpret them."""

from tests import builders
from webhook.core.kube import pod
from webhook.core.plan import plan
from webhook.core.rules.modes import REQUIRES
from webhook.core.rules.verbs import EXCLUSIONS


def test_every_word_about_the_rest_of_a_pod_is_interpreted() -> None:
    bare = pod.read(
        builders.pod(nodeName="node", containers=[builders.container(securityContext={"privileged": True})])
    )

    for word in REQUIRES.schema["properties"]:
        list(plan.missing({word: "1"}, bare, []))
    for word in EXCLUSIONS:
        list(plan.forbidden([word], bare, []))
