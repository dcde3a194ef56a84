"""What `gpuward explain` says where a kubelet ends pods: those that it evicts or refuses, and those that a finalizer outlives."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

from gpuward import names
from gpuward.cli.explain import show
from gpuward.cli.leader import Leader
from gpuward.kube import resources
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.sim.kubelet import TERMINATION_SECONDS
from tests.journeys.looking import explanation_of
from tests.journeys.stage import Object, Stage, on_stage


async def explained(stage: Stage, node: str) -> str:
    """Return what `gpuward explain` prints of a node."""
    found, out = await explanation_of(stage, node), io.StringIO()
    with redirect_stdout(out):
        show(found, Leader("operator here", found.now))
    return out.getvalue()


@on_stage(gpu_nodes=1)
async def test_no_finalizer_is_blamed_while_a_pod_has_its_grace_period_to_end(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("train", node="gpu-1")
    (pod,) = stage.workload_pods("train")
    slow = {"finalizers": ["batch.kubernetes.io/job-tracking", "example.com/save"], "annotations": {TERMINATION_SECONDS: "25"}}
    await stage.user.patch_merge(resources.PODS, pod["metadata"]["name"], {"metadata": slow}, WORKLOAD_NAMESPACE)
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "Evicting")
    await stage.rest(10)
    told = await explained(stage, "gpu-1")
    assert "example.com/save" not in told
    assert "pods have their grace periods to end" in told
    await stage.rest(30)
    assert "stays until its finalizer example.com/save is removed" in await explained(stage, "gpu-1")
