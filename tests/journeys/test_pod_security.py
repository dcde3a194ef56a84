"""`psa.enabled`: the operator labels its own namespace, where pod security admission would let no operand in."""

from __future__ import annotations

from typing import Any

from gpuward import names
from gpuward.errors import Forbidden
from gpuward.kube import resources
from kubesandbox import messages
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.stage import Proceed, Stage, on_stage

SPACE = names.DEFAULT_NAMESPACE
MODES = [f"pod-security.kubernetes.io/{mode}" for mode in ("enforce", "audit", "warn")]


class Asking(Stage):
    """Play a cluster whose policy asks for the labels, and whose namespace lets no privileged pod in."""

    asks: bool | None = True

    def _policy(self) -> dict[str, Any]:
        body = super()._policy()
        body["spec"]["psa"] = {"enabled": self.asks}
        return body

    async def start(self) -> None:
        self.objects = [{"apiVersion": "v1", "kind": "Namespace",
                         "metadata": {"name": SPACE, "labels": {MODES[0]: "baseline", "team": "gpu"}}}]
        await super().start()


class NotAsking(Asking):
    """Play the same cluster under a policy that does not ask."""

    asks = None


def levels(stage: Stage) -> dict[str, str]:
    """Return the namespace's labels of pod security."""
    labels = stage.sandbox.store.get("namespaces", None, SPACE)["metadata"]["labels"]
    return {key: value for key, value in labels.items() if key.startswith("pod-security")}


def requests(stage: Stage, verb: str) -> int:
    """Return how often the operator asked for something about namespaces."""
    return sum(count for key, count in stage.client.stats.requests.items() if (key.verb, key.resource) == (verb, "namespaces"))


def refuse_labels(request: Request, proceed: Proceed) -> Answer | Stream:
    if request.method == "PATCH" and request.path.startswith("/api/v1/namespaces/gpu-operator") and request.path.count("/") == 4:
        error = Forbidden("namespaces is forbidden")
        return messages.answer(messages.status_object(error), error.status)
    return proceed()


@on_stage(gpu_nodes=1, kind=Asking)
async def test_the_namespace_is_labelled_and_the_stack_comes(stage: Stage) -> None:
    await stage.installed()
    assert levels(stage) == dict.fromkeys(MODES, "privileged")
    assert stage.sandbox.store.get("namespaces", None, SPACE)["metadata"]["labels"]["team"] == "gpu"
    assert requests(stage, "patch") == 1
    await stage.restart_operator()
    await stage.rest(60)
    assert requests(stage, "patch") == 1


@on_stage(gpu_nodes=1, kind=Asking)
async def test_an_edited_label_is_set_again_and_none_is_taken_back(stage: Stage) -> None:
    await stage.installed()
    await stage.user.patch_merge(resources.NAMESPACES, SPACE, {"metadata": {"labels": {MODES[0]: "restricted", MODES[2]: None}}})
    await stage.until(lambda: levels(stage) == dict.fromkeys(MODES, "privileged"), 10)
    await stage.patch_policy("psa/enabled", False)
    await stage.rest(30)
    assert levels(stage) == dict.fromkeys(MODES, "privileged")
    await stage.user.patch_merge(resources.NAMESPACES, SPACE, {"metadata": {"labels": {MODES[2]: "baseline"}}})
    await stage.rest(30)
    assert levels(stage)[MODES[2]] == "baseline"


@on_stage(gpu_nodes=1, kind=NotAsking)
async def test_without_it_nothing_is_asked_or_written(stage: Stage) -> None:
    await stage.rest(120)
    assert levels(stage) == {MODES[0]: "baseline"}
    assert requests(stage, "list") == requests(stage, "watch") == requests(stage, "patch") == 0


@on_stage(gpu_nodes=1, kind=Asking, interfere=refuse_labels)
async def test_a_refusal_is_told_once(stage: Stage) -> None:
    await stage.rest(600)
    assert levels(stage) == {MODES[0]: "baseline"}
    told = stage.warnings("Action failed", action="PatchLabels", object=f"Namespace/{SPACE}")
    assert [line["error"] for line in told] == ["namespaces is forbidden"]
    why = "Failed to reconcile spec.psa.enabled: Namespace gpu-operator cannot be written: namespaces is forbidden"
    assert (stage.policy_status()["state"], stage.condition()["message"]) == ("notReady", why)
