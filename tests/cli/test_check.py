"""`gpuward check`: what it reads of a cluster, what it says where it may not, and how it exits."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuward import names
from gpuward.cli.check import as_json, line
from gpuward.cli.inspection import inspected, needed
from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.report.checks import Finding, findings
from gpuward.report.checks.facts import Inspected
from gpuward.sandbox.cluster import Sandbox
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.timeloop import LoopClock
from tests.deploy.test_rights import objects
from tests.journeys.looking import status_of
from tests.journeys.stage import POLICY, Stage, on_stage, policy
from tests.journeys.test_nvidiadriver import nvidia_driver
from tests.recorder.test_process import COMMAND, install, process, until

REVIEWS = "/apis/authorization.k8s.io/v1/"
SHIPPED = len(list(needed(names.DEFAULT_NAMESPACE)))
"""How many rights the shipped roles have."""


def test_an_api_server_that_is_too_old_is_one_line_that_says_from_which_version_on() -> None:
    def about(version: str) -> list[str]:
        facts = Inspected(namespace=names.DEFAULT_NAMESPACE, version=version)
        return [line(found).plain for found in findings(facts) if found.check == "kubernetes"]

    assert about("v1.28.15") == [
        "fail  kubernetes       v1.28.15 is older than 1.29, the oldest that gpuward supports -> upgrade the cluster"]
    assert about("v1.29.0") == ["ok    kubernetes       v1.29.0"]


async def checked(sandbox: Sandbox, interfere: Callable[..., Answer | Stream] | None = None,
                  namespace: str = names.DEFAULT_NAMESPACE) -> list[Finding]:
    """Return the findings about a cluster, for one whose requests may be disturbed."""
    transport = sandbox.transport()
    if interfere is not None:
        transport.interfere = interfere
    return list(findings(await inspected(Client(transport), namespace, LoopClock())))


def lines(found: list[Finding], level: str = "") -> list[str]:
    return [" ".join(str(line(one)).split()) for one in found if level in ("", one.level)]


@on_stage(gpu_nodes=1)
async def test_a_policy_that_leaves_drivers_to_nobody_is_not_called_well(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    (told,) = [one for one in lines(await checked(stage.sandbox)) if " policy " in one]
    assert told.startswith("warn policy ClusterPolicy cluster-policy leaves drivers to NVIDIADrivers, and there is none: "
                           "no node gets a driver -> create one")
    assert "kubectl apply" not in told  # the example's version would replace the driver of a fleet
    stage.sandbox.apply(nvidia_driver("default"))
    assert "ok policy ClusterPolicy cluster-policy can be followed" in lines(await checked(stage.sandbox))


@on_stage(gpu_nodes=2)
async def test_a_cluster_in_which_all_is_well_but_that_no_operator_is_seen(stage: Stage) -> None:
    await stage.installed()
    found = await checked(stage.sandbox)
    assert lines(found, "ok") == [
        "ok kubernetes v1.36.3+kubesandbox", "ok clock this machine's agrees with the API server's",
        "ok crds clusterpolicies.nvidia.com v1", "ok crds nvidiadrivers.nvidia.com v1alpha1",
        "ok crds rolloutpolicies.gpuward.io v1alpha1", f"ok rights your own user has all {SHIPPED}",
        "ok webhooks none sees what gpuward writes", "ok runtime-classes nvidia, nvidia-cdi, nvidia-legacy",
        "ok discovery 2 of 3 nodes have GPUs", "ok runtime containerd on 2",
        "ok policy ClusterPolicy cluster-policy can be followed",
    ]
    (told,) = [one for one in found if one.check == "operators"]
    assert (told.level, told.found) == ("warn", "no operator runs: there is no Lease gpu-operator/53822513.nvidia.com")
    assert "kubectl logs -n gpu-operator deployment/gpu-operator" in told.fix
    assert lines(found, "fail") == []


@on_stage(gpu_nodes=1)
async def test_an_image_for_which_a_hook_of_the_chart_waits_is_named(stage: Stage) -> None:
    """Helm says no more than that it timed out."""
    await stage.installed()
    containers = [{"name": "upgrade-crd", "image": "registry.example/gpuward:9"}]
    stage.sandbox.apply({
        "apiVersion": "v1", "kind": "Pod", "spec": {"schedulerName": "none", "containers": containers},
        "metadata": {"name": "hook-1", "namespace": names.DEFAULT_NAMESPACE,
                     "labels": {names.JOB_NAME: "gpu-operator-upgrade-crd"}}})
    waiting = {"containerStatuses": [{"name": "upgrade-crd", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    await stage.user.patch_merge(resources.PODS, "hook-1", {"status": waiting}, names.DEFAULT_NAMESPACE, subresource="status")
    told = [one for one in lines(await checked(stage.sandbox), "fail") if "hook-1" in one]
    assert len(told) == 1
    assert "waits for its image registry.example/gpuward:9: ImagePullBackOff" in told[0]


@on_stage(gpu_nodes=1)
async def test_policies_are_judged_with_what_they_name(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/virtualTopology", {"config": "topology"})
    await stage.patch_policy("driver/imagePullSecrets", ["pulling"])
    await stage.patch_policy("daemonsets/priorityClassName", "vital")
    stage.sandbox.apply(policy("second"))
    missing = "is missing in namespace gpu-operator, and a policy names it -> make it, or name another one"
    found = await checked(stage.sandbox)
    assert f"fail references ConfigMap topology {missing}" in lines(found)
    assert any(one.startswith("warn references Secret pulling is not there") for one in lines(found))
    assert any(one.startswith("warn references PriorityClass vital is not there") for one in lines(found))
    assert any(one.startswith("warn policy ClusterPolicy second is ignored: cluster-policy is older") for one in lines(found))
    await stage.patch_policy("driver/version", "no version at all")
    (problem,) = [one for one in lines(await checked(stage.sandbox), "fail") if one.startswith("fail policy")]
    assert problem.startswith(f"fail policy ClusterPolicy {POLICY}: spec.driver.version: 'no version at all'")


@on_stage(gpu_nodes=1)
async def test_it_asks_about_the_operators_service_account_and_writes_nothing(stage: Stage) -> None:
    """The roles that are shipped are what is asked about; which of them are missing only the API server knows."""
    asked: list[Request] = []
    reviews: list[Any] = []

    def judge(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        asked.append(request)
        if not request.path.startswith(REVIEWS):
            return proceed()
        review = json.loads(request.body)
        reviews.append(review["spec"])
        allowed = review["spec"]["resourceAttributes"]["resource"] != "runtimeclasses"
        return Answer(201, json.dumps({**review, "status": {"allowed": allowed}}).encode())

    await stage.installed()
    for obj in objects("ServiceAccount"):
        stage.sandbox.apply(obj)
    told = [one for one in lines(await checked(stage.sandbox, judge)) if "rights" in one]
    assert told == [f"fail rights ServiceAccount gpu-operator lacks 6 of {SHIPPED}: create runtimeclasses.node.k8s.io, delete "
                    "runtimeclasses.node.k8s.io, get runtimeclasses.node.k8s.io, list runtimeclasses.node.k8s.io and 2 more -> "
                    "kubectl apply -f deploy/operator.yaml"]
    assert {review["user"] for review in reviews} == {"system:serviceaccount:gpu-operator:gpu-operator"}
    assert {"group": "coordination.k8s.io", "resource": "leases", "verb": "list", "name": names.LEADER_LEASE} in [
        review["resourceAttributes"] for review in reviews]
    assert {request.method for request in asked if not request.path.startswith(REVIEWS)} == {"GET"}


@on_stage(gpu_nodes=1)
async def test_who_may_see_nothing_is_told_so_and_nothing_fails(stage: Stage) -> None:
    def blind(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        return proceed() if request.path == "/version" else refusal(Forbidden(f"{request.path} is forbidden"))

    found = await checked(stage.sandbox, blind)
    assert lines(found, "fail") == []
    assert {one.check for one in found if one.found.startswith("not known: ")} == {
        "crds", "namespace", "rights", "webhooks", "operators", "runtime-classes", "discovery", "policy", "references"}
    assert as_json(found)["ok"] is True


def test_every_right_that_is_shipped_is_asked_about_once() -> None:
    rights = list(needed("elsewhere"))
    assert len(rights) == len(set(rights))
    assert {right.namespace for right in rights} == {"", "elsewhere"}
    rules = [rule for role in (*objects("ClusterRole"), *objects("Role")) for rule in role["rules"]]
    assert {right.resource for right in rights} == {resource for rule in rules for resource in rule["resources"]}


def test_as_a_process_it_exits_with_1_where_something_fails(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with process(tmp_path / "sandbox", "sandbox", "--nodes", "1", "--kubeconfig", str(kubeconfig)):
        until(kubeconfig.exists, tmp_path / "sandbox")
        options = ["--kubeconfig", str(kubeconfig)]
        before = subprocess.run([*COMMAND, "check", *options], capture_output=True, text=True, timeout=60, check=False)
        asyncio.run(install(kubeconfig))
        after = subprocess.run([*COMMAND, "check", *options, "-o", "json"], capture_output=True, text=True, timeout=60,
                               check=False)
        read, written = os.pipe()
        os.close(read)
        unread = subprocess.run([*COMMAND, "status", *options, "-o", "json"], stdout=written, stderr=subprocess.PIPE,
                                timeout=60, check=False)
        os.close(written)
    assert (unread.returncode, unread.stderr) == (1, b""), "whoever reads no more, as head does, is told nothing"
    assert before.returncode == 1, before.stderr
    missing = "fail  crds             clusterpolicies.nvidia.com is not installed -> "
    assert f"{missing}gpuward crds | kubectl --kubeconfig {kubeconfig} apply" in before.stdout
    assert before.stdout.splitlines()[-1].endswith(" 1 fail")
    told = json.loads(after.stdout)
    assert (after.returncode, told["ok"]) == (0, True)
    assert {"check": "crds", "level": "ok", "found": "clusterpolicies.nvidia.com v1", "fix": None} in told["findings"]


GPU_CLUSTER_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gpuclusters.nvidia.com"},
    "spec": {"group": "nvidia.com", "scope": "Cluster",
             "names": {"plural": "gpuclusters", "singular": "gpucluster", "kind": "GPUCluster", "listKind": "GPUClusterList"},
             "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                 "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


@on_stage(gpu_nodes=1)
async def test_a_gpu_cluster_is_said_not_to_be_supported_and_changes_nothing(stage: Stage) -> None:
    await stage.installed()
    told = "GPUCluster gpu-cluster is not supported: gpuward does nothing about it"
    assert told not in (await status_of(stage))["problems"]
    stage.sandbox.apply(GPU_CLUSTER_CRD)
    body = {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "gpu-cluster"}, "spec": {}}
    stage.sandbox.apply(body)
    assert told in (await status_of(stage))["problems"]
    assert any(told in one for one in lines(await checked(stage.sandbox), "warn"))
    await stage.rest(120)
    assert stage.policy_status()["state"] == "ready"
