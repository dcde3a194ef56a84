"""Whatever secrets a cluster holds, none of them is in a recording."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpuward import names
from gpuward.kube import resources
from gpuward.recorder.ring import PATTERN
from gpuward.recording.codec import Decoder
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.builders import deployment
from tests.journeys.stage import NEW, POLICY, Stage, gpu_template, on_stage
from tests.recorder.flights import Flight

SECRET = "hunter2-"


def unpacked(path: Path) -> bytes:
    """Return all that the recordings of a folder say, as it is before it is compressed."""
    return b"".join(msgspec.msgpack.encode(record) for file in path.glob(PATTERN) for record in Decoder(file.read_bytes()))


async def plant(stage: Stage) -> None:
    """Put secrets wherever people put them."""
    env = [{"name": "HTTPS_PROXY", "value": f"http://user:{SECRET}policy@proxy"}]
    await stage.patch_policy("driver/env", env)
    await stage.patch_policy("driver/manager/env", env)
    notes = {"example.com/token": f"{SECRET}annotation", "kubectl.kubernetes.io/last-applied-configuration": f"{SECRET}applied"}
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"metadata": {"annotations": notes}})
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": notes}})
    stage.sandbox.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": names.DEFAULT_NAMESPACE},
                         "stringData": {"password": f"{SECRET}secret"}})
    template = gpu_template("web")
    template["metadata"]["annotations"] = notes
    template["spec"]["containers"][0] |= {"env": [{"name": "TOKEN", "value": f"{SECRET}env"}], "args": [f"--key={SECRET}args"]}
    stage.sandbox.apply(deployment("web", WORKLOAD_NAMESPACE, 2, template))


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 2})
async def test_no_secret_is_recorded(stage: Stage) -> None:
    flight = Flight()
    flight.board(stage)
    await stage.installed()
    await plant(stage)
    await stage.until(lambda: len(stage.workload_pods("web")) == 2)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.finished() and len(stage.workload_pods("web")) == 2)
    flight.land()
    said = unpacked(flight.folder)
    assert b"gpu-1" in said
    assert b"web" in said
    assert SECRET.encode() not in said
    assert SECRET in str(flight.passes[-1].snapshot), "the facts of the operator do hold some"
