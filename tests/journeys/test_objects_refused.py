"""Objects that the API server does not take as a policy wants them: the policy is not called ready, and says which and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from tools.oracle.played import monitors

from gpuward.errors import Forbidden
from gpuward.model.states import State
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.timeloop import run_virtual
from tests.journeys.stage import OLD, Stage, playing
from tests.journeys.test_nvidiadriver import condition, make, nvidia_driver

SAID = "this is not allowed here"


class Refusing:
    """Refuse requests of one method for one kind of objects, while that is wanted."""

    def __init__(self, method: str, plural: str) -> None:
        self.method, self.plural, self.wanted = method, plural, False

    def __call__(self, request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        """Answer a request."""
        where = request.path.partition("?")[0].split("/")
        if self.wanted and request.method == self.method and self.plural in where[-2:]:
            return refusal(Forbidden(SAID))
        return proceed()


class Case(NamedTuple):
    """Hold an edit of the policy that comes to a write of one object, and what is said where that is refused."""

    method: str
    plural: str
    field: str
    value: object
    told: str


CASES = (
    Case("PUT", "services", "dcgmExporter/service", {"type": "NodePort"},
         "state-dcgm-exporter: Service nvidia-dcgm-exporter cannot be written"),
    Case("PUT", "servicemonitors", "dcgmExporter/serviceMonitor", {"enabled": True, "interval": "33s"},
         "state-dcgm-exporter: ServiceMonitor nvidia-dcgm-exporter cannot be written"),
    Case("POST", "runtimeclasses", "operator/runtimeClass", "other", "pre-requisites: RuntimeClass other cannot be written"),
    Case("POST", "clusterroles", "dcgmExporter/enablePodLabels", True,
         "state-dcgm-exporter: ClusterRole nvidia-dcgm-exporter-read-pods cannot be written"),
    Case("DELETE", "services", "dcgmExporter/enabled", False,
         "state-dcgm-exporter: Service nvidia-dcgm-exporter cannot be deleted"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.method} {case.plural}")
def test_a_policy_is_not_ready_while_one_of_its_objects_is_refused(case: Case) -> None:
    refusing = Refusing(case.method, case.plural)

    async def main() -> None:
        async with playing(Stage(1, objects=[monitors()], interfere=refusing)) as stage:
            await stage.installed()
            refusing.wanted = True
            await stage.patch_policy(case.field, case.value)
            await stage.rest(90)
            assert stage.policy_status()["state"] == "notReady"
            assert stage.condition()["reason"] == "ReconcileFailed"
            assert stage.condition()["message"] == f"Failed to reconcile {case.told}: {SAID}"
            assert stage.all_are(State.DONE)
            refusing.wanted = False
            await stage.installed()

    run_virtual(main)


def test_an_nvidiadriver_is_not_ready_while_the_account_of_its_pods_is_refused() -> None:
    refusing = Refusing("POST", "serviceaccounts")

    async def main() -> None:
        async with playing(Stage(1, interfere=refusing)) as stage:
            await stage.installed()
            refusing.wanted = True
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("all", default=True))
            await stage.rest(90)
            told = f"ServiceAccount nvidia-gpu-driver-all-ubuntu22.04 cannot be written: {SAID}"
            assert condition(stage, "all") == ("notReady", "ReconcileFailed", f"Error syncing state state-driver: {told}")
            refusing.wanted = False
            await stage.installed()

    run_virtual(main)


def test_a_policy_that_may_not_be_annotated_says_how_things_stand() -> None:
    refusing = Refusing("PATCH", "clusterpolicies")
    refusing.wanted = True

    async def main() -> None:
        async with playing(Stage(1, interfere=refusing)) as stage:
            await stage.until(lambda: stage.policy_status().get("state") == "ready", within=300)
            await stage.patch_policy("driver/version", "a b")
            await stage.until(lambda: stage.condition()["reason"] == "ReconcileFailed", within=60)
            await stage.patch_policy("driver/version", OLD)
            await stage.installed()

    run_virtual(main)


def test_a_policy_says_that_no_node_may_be_labelled() -> None:
    refusing = Refusing("PATCH", "nodes")
    refusing.wanted = True

    async def main() -> None:
        async with playing(Stage(2, interfere=refusing)) as stage:
            await stage.rest(90)
            assert stage.policy_status()["state"] == "notReady"
            assert stage.condition()["message"] == f"Failed to reconcile node labels: node gpu-1 cannot be labelled: {SAID}"
            refusing.wanted = False
            await stage.installed()

    run_virtual(main)
