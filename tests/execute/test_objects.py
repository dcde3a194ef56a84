"""How objects of ours are written, and custom resources patched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpuward.kube.http.stats import RequestKey
from gpuward.model.actions import ApplyObject, DeleteObject, PatchAnnotations, PatchStatus, SetOwner
from gpuward.model.views import Ref
from kubesandbox.store import Object
from tests.execute.bench import Bench, on_a_bench

NAMESPACE = "gpu-operator"
OWNER = [{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "cluster-policy", "uid": "cp", "controller": True}]


def config_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": "settings", "namespace": NAMESPACE, "ownerReferences": OWNER}}


def service(port: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "exporter", "namespace": NAMESPACE},
            "spec": {"selector": {"app": "exporter"}, "ports": [{"port": port, "protocol": "TCP", "targetPort": port}]}}


def apply(body: dict[str, Any], version: str = "", *, verify: bool = False) -> ApplyObject:
    return ApplyObject(body["kind"], Ref(NAMESPACE, body["metadata"]["name"]), body, "hash", version, verify)


def stored(bench: Bench, key: str, name: str) -> Object:
    return bench.sandbox.store.get(key, NAMESPACE, name)


def count(bench: Bench, verb: str, resource: str, status: int) -> int:
    return bench.client.stats.requests[RequestKey(verb, resource, status)]


def test_what_is_created_is_known_at_once() -> None:
    async def play(bench: Bench) -> None:
        (outcome,) = await bench.execute(apply(config_map(a="1")))
        assert outcome.error == ""
        key = ("ConfigMap", NAMESPACE, "settings")
        seen = bench.cluster.observe()
        assert seen.owned[key].version == seen.applied[key].version
        assert seen.applied[key].hash == "hash"

    on_a_bench(play)


def test_a_name_that_is_taken_is_taken_over_unless_all_is_as_wanted() -> None:
    async def play(bench: Bench) -> None:
        bench.sandbox.apply(config_map(a="theirs"))
        await bench.execute(apply(config_map(a="1")))
        assert stored(bench, "configmaps", "settings")["data"] == {"a": "1"}
        assert count(bench, "update", "configmaps", 200) == 1
        await bench.execute(apply(config_map(a="1")))
        assert count(bench, "update", "configmaps", 200) == 1

    on_a_bench(play)


def test_a_replacement_needs_the_version_that_was_seen() -> None:
    async def play(bench: Bench) -> None:
        await bench.execute(apply(config_map(a="1")))
        old = stored(bench, "configmaps", "settings")["metadata"]["resourceVersion"]
        bench.sandbox.apply(config_map(a="theirs"))
        (outcome,) = await bench.execute(apply(config_map(a="2"), old))
        assert "modified" in outcome.error
        assert stored(bench, "configmaps", "settings")["data"] == {"a": "theirs"}
        seen = bench.cluster.observe().owned["ConfigMap", NAMESPACE, "settings"]
        assert seen.version == stored(bench, "configmaps", "settings")["metadata"]["resourceVersion"]
        await bench.execute(apply(config_map(a="2"), seen.version))
        assert stored(bench, "configmaps", "settings")["data"] == {"a": "2"}

    on_a_bench(play)


def test_a_replacement_leaves_nothing_of_what_others_added() -> None:
    async def play(bench: Bench) -> None:
        await bench.execute(apply(config_map(a="1")))
        bench.sandbox.apply(config_map(a="1", added="x"))
        await bench.execute(apply(config_map(a="1"), stored(bench, "configmaps", "settings")["metadata"]["resourceVersion"],
                                  verify=True))
        assert stored(bench, "configmaps", "settings")["data"] == {"a": "1"}

    on_a_bench(play)


def test_a_label_of_others_costs_no_write_and_goes_with_the_next_one() -> None:
    async def play(bench: Bench) -> None:
        await bench.execute(apply(config_map(a="1")))
        body = config_map(a="1")
        bench.sandbox.apply({**body, "metadata": {**body["metadata"], "labels": {"theirs": "x"}}})
        version = stored(bench, "configmaps", "settings")["metadata"]["resourceVersion"]
        await bench.execute(apply(body, version, verify=True))
        assert stored(bench, "configmaps", "settings")["metadata"]["labels"] == {"theirs": "x"}
        assert count(bench, "update", "configmaps", 200) == 0
        await bench.execute(apply(config_map(a="2"), version))
        assert "labels" not in stored(bench, "configmaps", "settings")["metadata"]

    on_a_bench(play)


def test_a_service_keeps_the_address_that_it_was_given() -> None:
    async def play(bench: Bench) -> None:
        await bench.execute(apply(service(80)))
        before = stored(bench, "services", "exporter")
        (outcome,) = await bench.execute(apply(service(81), before["metadata"]["resourceVersion"]))
        after = stored(bench, "services", "exporter")
        assert outcome.error == ""
        assert after["spec"]["ports"][0]["port"] == 81
        assert after["spec"].get("clusterIP") == before["spec"].get("clusterIP")

    on_a_bench(play)


def account(*owners: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", **rest,
            "metadata": {"name": "a", "namespace": NAMESPACE, **({"ownerReferences": list(owners)} if owners else {})}}


def test_an_account_gets_its_new_owner_and_keeps_what_others_gave_it() -> None:
    async def play(bench: Bench) -> None:
        other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
        secrets = [{"name": "theirs"}]
        made = bench.sandbox.apply(account({**OWNER[0], "uid": "dead"}, other, secrets=secrets))["metadata"]
        await asyncio.sleep(0)
        seen = Ref(NAMESPACE, "a", made["uid"])
        for _ in range(2):
            action = ApplyObject("ServiceAccount", seen, account(*OWNER), "hash", made["resourceVersion"], verify=True)
            (outcome,) = await bench.execute(action)
            assert outcome.error == ""
        now = stored(bench, "serviceaccounts", "a")
        assert (now["metadata"]["ownerReferences"], now["secrets"]) == ([*OWNER, other], secrets)
        assert count(bench, "update", "serviceaccounts", 200) == 1

    on_a_bench(play)


@pytest.mark.parametrize("version", ["", "1"])
def test_an_account_of_somebody_else_is_left_alone_and_known(version: str) -> None:
    async def play(bench: Bench) -> None:
        made = bench.sandbox.apply(account(secrets=[{"name": "theirs"}]))["metadata"]
        action = ApplyObject("ServiceAccount", Ref(NAMESPACE, "a", made["uid"]), account(*OWNER), "hash", version)
        (outcome,) = await bench.execute(action)
        assert outcome.error == ""
        assert "ownerReferences" not in stored(bench, "serviceaccounts", "a")["metadata"]
        assert bench.cluster.observe().owned["ServiceAccount", NAMESPACE, "a"].owner_uid == ""

    on_a_bench(play)


def test_an_object_on_its_way_out_keeps_its_finalizers() -> None:
    async def play(bench: Bench) -> None:
        body = config_map(a="1")
        bench.sandbox.apply({**body, "metadata": {**body["metadata"], "finalizers": ["example.com/held"]}})
        bench.sandbox.store.delete("configmaps", NAMESPACE, "settings")
        (outcome,) = await bench.execute(apply(config_map(a="2")))
        assert "already exists" in outcome.error, "so that it is tried again less and less often"
        assert stored(bench, "configmaps", "settings")["metadata"]["finalizers"] == ["example.com/held"]

    on_a_bench(play)


def test_a_deleted_object_is_forgotten_and_one_that_has_gone_is_no_failure() -> None:
    async def play(bench: Bench) -> None:
        await bench.execute(apply(config_map(a="1")))
        uid = stored(bench, "configmaps", "settings")["metadata"]["uid"]
        for _ in range(2):
            (outcome,) = await bench.execute(DeleteObject("ConfigMap", Ref(NAMESPACE, "settings", uid)))
            assert outcome.error == ""
            seen = bench.cluster.observe()
            assert ("ConfigMap", NAMESPACE, "settings") not in seen.owned
            assert ("ConfigMap", NAMESPACE, "settings") not in seen.applied

    on_a_bench(play)


@pytest.mark.parametrize(("orphan", "left"), [(True, 3), (False, 0)])
def test_the_pods_of_a_deleted_daemonset_stay_where_that_is_wanted(orphan: bool, left: int) -> None:
    async def play(bench: Bench) -> None:
        template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
        made = bench.sandbox.apply({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "x", "namespace": NAMESPACE},
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}})
        await asyncio.sleep(30)
        await bench.execute(DeleteObject("DaemonSet", Ref(NAMESPACE, "x", made["metadata"]["uid"]), orphan=orphan))
        await asyncio.sleep(60)
        pods = [pod for pod in bench.sandbox.store.list("pods", NAMESPACE) if pod["metadata"]["labels"]["app"] == "x"]
        assert len(pods) == left
        assert not any(pod["metadata"].get("ownerReferences") for pod in pods)
        assert bench.sandbox.store.find("daemonsets.apps", NAMESPACE, "x") is None

    on_a_bench(play)


def test_another_object_of_the_same_name_is_not_deleted() -> None:
    async def play(bench: Bench) -> None:
        await bench.execute(apply(config_map(a="1")))
        (outcome,) = await bench.execute(DeleteObject("ConfigMap", Ref(NAMESPACE, "settings", "another-uid")))
        assert outcome.error
        assert stored(bench, "configmaps", "settings")

    on_a_bench(play)


def test_a_status_and_annotations_are_merged_into_a_custom_resource_and_known_at_once() -> None:
    async def play(bench: Bench) -> None:
        policy = bench.sandbox.apply({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {
            "name": "cluster-policy", "annotations": {"theirs": "1"}}, "spec": _spec()})
        ref = Ref("", "cluster-policy", policy["metadata"]["uid"])
        outcomes = await bench.execute(PatchStatus("ClusterPolicy", ref, {"state": "ready", "namespace": NAMESPACE}),
                                       PatchAnnotations("ClusterPolicy", ref, {"gpuward.io/x": "1"}))
        assert [outcome.error for outcome in outcomes] == ["", ""]
        (seen,) = bench.cluster.observe().policies
        assert seen.body["status"]["state"] == "ready"
        assert seen.body["metadata"]["annotations"] == {"theirs": "1", "gpuward.io/x": "1"}
        other = Ref("", "cluster-policy", "another-uid")
        (outcome,) = await bench.execute(PatchAnnotations("ClusterPolicy", other, {"gpuward.io/x": "2"}))
        assert outcome.error

    on_a_bench(play)


def test_a_second_owner_comes_and_goes_and_all_else_stays() -> None:
    async def play(bench: Bench) -> None:
        policy = bench.sandbox.apply({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {
            "name": "cluster-policy"}, "spec": _spec()})
        owners = [{"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "name": "a", "uid": "u", "controller": True},
                  {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other"}]
        template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
        before = bench.sandbox.apply({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "x", "namespace": NAMESPACE, "annotations": {"theirs": "1"}, "ownerReferences": owners},
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}})
        ref, owner = Ref(NAMESPACE, "x", before["metadata"]["uid"]), Ref("", "cluster-policy", policy["metadata"]["uid"])
        change = SetOwner("DaemonSet", ref, "u", owner, {"gpuward.io/x": "1"})
        (outcome,) = await bench.execute(change)
        assert (outcome.error, outcome.idle) == ("", False)
        after = stored(bench, "daemonsets.apps", "x")
        assert [each["uid"] for each in after["metadata"]["ownerReferences"]] == ["u", "other", owner.uid]
        assert after["metadata"]["annotations"].items() >= {"theirs": "1", "gpuward.io/x": "1"}.items()
        assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])
        (seen,) = [ds for ds in bench.cluster.observe().daemonsets if ds.name == "x"]
        assert seen.policies == (owner.uid,), "it is known at once"
        (outcome,) = await bench.execute(change)
        assert outcome.idle
        for wrong in (SetOwner("DaemonSet", ref, "", None), SetOwner("DaemonSet", Ref(NAMESPACE, "x", "another"), "u", None)):
            (outcome,) = await bench.execute(wrong)
            assert outcome.called_off
        await bench.execute(SetOwner("DaemonSet", ref, "u", None, {"gpuward.io/x": None}))
        gone = stored(bench, "daemonsets.apps", "x")["metadata"]
        assert [each["uid"] for each in gone["ownerReferences"]] == ["u", "other"]
        assert "gpuward.io/x" not in gone["annotations"]

    on_a_bench(play)


def _spec() -> dict[str, Any]:
    parts = ("operator", "daemonsets", "driver", "toolkit", "devicePlugin", "dcgm", "dcgmExporter", "gfd", "nodeStatusExporter")
    return {part: {} for part in parts} | {"operator": {"defaultRuntime": "containerd"}}
