from __future__ import annotations

import pytest

from kubesandbox.builders import linux_node
from kubesandbox.sim.faults import Fault, FaultKind
from kubesandbox.sim.kubelet import TERMINATION_SECONDS
from kubesandbox.sim.objects import Object, condition, is_ready, is_terminating, is_true, name_of
from kubesandbox.sim.programs import EXIT_CODE, RUN_SECONDS
from kubesandbox.sim.simulation import Simulation
from sandbox_helpers.cluster import Cluster, DeviceHardware, all_ready, daemonset, device_node, device_pod, play


def pod(name: str = "p", *, policy: str = "Always", annotations: dict[str, str] | None = None, **spec: object) -> Object:
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "ml", "labels": {"app": name}, "annotations": annotations or {}},
            "spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": "i:1"}], **spec}}


def current(cluster: Cluster, name: str = "p") -> Object:
    return cluster.store.get("pods", "ml", name)


def test_a_pod_goes_from_pending_through_its_init_containers_to_ready() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        seen: list[tuple[str, str]] = []

        def note(event: object) -> None:
            found = cluster.store.find("pods", "ml", "p") or {}
            states = (found.get("status") or {}).get("initContainerStatuses") or []
            seen.append((found["status"]["phase"], "".join(next(iter(status["state"]))[0] for status in states)))
            # One that runs has not done its part yet.
            assert all(status["ready"] is ("terminated" in status["state"]) for status in states)

        cluster.store.subscribe(note, "pods")
        cluster.add(pod(initContainers=[{"name": "first", "image": "i:1"}, {"name": "second", "image": "i:1"}],
                        containers=[{"name": "main", "image": "i:1", "readinessProbe": {"exec": {"command": ["x"]}}}]))
        await cluster.until(lambda: is_ready(current(cluster)))
        assert list(dict.fromkeys(seen)) == [
            ("Pending", ""), ("Pending", "ww"), ("Pending", "rw"), ("Pending", "tr"), ("Running", "tt")]
        status = current(cluster)["status"]
        assert {found["type"]: found["status"] for found in status["conditions"]} == dict.fromkeys(
            ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), "True")
        assert status["hostIP"].startswith("10.")
        assert status["podIP"] != status["hostIP"]
        assert status["qosClass"] == "BestEffort"
        assert status["containerStatuses"][0]["started"] is True
        # The probe of the main container took its time.
        ready = condition(current(cluster), "Ready")
        assert ready is not None
        assert ready["lastTransitionTime"] > status["containerStatuses"][0]["state"]["running"]["startedAt"]

    play(story)


@pytest.mark.parametrize(("policy", "code", "phase", "restarts"), [
    ("Never", "0", "Succeeded", False), ("Never", "3", "Failed", False), ("OnFailure", "0", "Succeeded", False),
    ("OnFailure", "3", "Running", True), ("Always", "0", "Running", True)])
def test_the_restart_policy_decides_what_an_exit_means(policy: str, code: str, phase: str, restarts: bool) -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(pod(policy=policy, annotations={RUN_SECONDS: "5", EXIT_CODE: code}))
        await cluster.rest(40)
        status = current(cluster)["status"]
        assert status["phase"] == phase
        assert (status["containerStatuses"][0]["restartCount"] > 0) is restarts

    play(story)


def test_restarts_back_off_and_are_named_as_kubectl_shows_them() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(pod(annotations={RUN_SECONDS: "1", EXIT_CODE: "1"}))
        counts = []
        for _ in range(12):
            await cluster.rest(10)
            counts.append(current(cluster)["status"]["containerStatuses"][0]["restartCount"])
        assert counts == sorted(counts)
        # 1 s, then 10, 20, 40, 80: five restarts in two minutes at most.
        assert 4 <= counts[-1] <= 5
        status = current(cluster)["status"]["containerStatuses"][0]
        assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert status["lastState"]["terminated"]["exitCode"] == 1
        assert not is_ready(current(cluster))

    play(story)


@pytest.mark.parametrize(("asked", "takes", "gone_after"), [(None, "2", 2), (None, "100", 30), (5, "100", 5), (0, "100", 0)])
def test_a_pod_ends_when_its_containers_have_or_its_grace_is_over(asked: int | None, takes: str, gone_after: int) -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(pod(annotations={TERMINATION_SECONDS: takes}))
        await cluster.until(lambda: is_ready(current(cluster)))
        began = cluster.now
        cluster.delete(current(cluster), grace_seconds=asked)
        while cluster.store.find("pods", "ml", "p"):
            await cluster.rest(0.5)
        assert gone_after - 1 <= cluster.now - began <= gone_after + 1

    play(story)


async def stuck() -> Cluster:
    """Return a cluster with a pod that was deleted and does not end."""
    cluster = Cluster(linux_node("cpu-1"))
    cluster.add(pod())
    await cluster.until(lambda: is_ready(current(cluster)))
    cluster.sim.faults.add(Fault(FaultKind.STUCK_TERMINATING, pod="p"))
    cluster.delete(current(cluster))
    return cluster


def test_a_pod_that_is_stuck_ends_only_when_the_fault_does() -> None:
    async def story() -> None:
        cluster = await stuck()
        await cluster.rest(600)
        assert is_terminating(current(cluster))
        cluster.sim.faults.clear()
        await cluster.until(lambda: cluster.store.find("pods", "ml", "p") is None, within=5)

    play(story)


def test_a_pod_that_is_stuck_has_no_process_any_more_after_a_reboot() -> None:
    async def story() -> None:
        cluster = await stuck()
        await cluster.rest(60)
        cluster.sim.kubelets.reboot("cpu-1")
        await cluster.until(lambda: cluster.store.find("pods", "ml", "p") is None, within=5)

    play(story)


def test_an_image_that_cannot_be_pulled_keeps_the_pod_pending() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        fault = Fault(FaultKind.IMAGE_PULL, image="i:*")
        cluster.sim.faults.add(fault)
        cluster.add(pod())
        await cluster.rest(60)
        status = current(cluster)["status"]
        assert status["phase"] == "Pending"
        assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
        cluster.sim.faults.clear(fault)
        await cluster.until(lambda: is_ready(current(cluster)), within=10)

    play(story)


def test_an_image_that_is_not_on_a_machine_takes_its_time_once() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.sim.world.pull_seconds = lambda image: 300.0
        cluster.add(pod("first", node="cpu-1"))
        await cluster.rest(290)
        state = current(cluster, "first")["status"]["containerStatuses"][0]["state"]
        assert state == {"waiting": {"reason": "ContainerCreating"}}
        await cluster.until(lambda: is_ready(current(cluster, "first")), within=20)
        cluster.add(pod("second", node="cpu-1"))
        await cluster.until(lambda: is_ready(current(cluster, "second")), within=10)

    play(story)


def test_an_image_that_does_not_exist_is_named_as_a_kubelet_does() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.sim.world.has_image = lambda image: image == "there:1"
        cluster.add(pod())
        await cluster.rest(60)
        image = current(cluster)["spec"]["containers"][0]["image"]
        assert current(cluster)["status"]["containerStatuses"][0]["state"]["waiting"] == {
            "reason": "ImagePullBackOff", "message":
            f'Back-off pulling image "{image}": ErrImagePull: rpc error: code = NotFound desc = '
            f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: not found'}

    play(story)


def test_a_pod_whose_devices_have_gone_meanwhile_is_refused_by_the_kubelet() -> None:
    async def story() -> None:
        cluster = Cluster(device_node("dev-1", 2), hardware=DeviceHardware())
        cluster.add(device_pod("first", devices=2))
        await cluster.until(lambda: is_ready(current(cluster, "first")))
        cluster.add(device_pod("second", node="dev-1"))
        await cluster.rest(2)
        status = current(cluster, "second")["status"]
        assert status["phase"] == "Failed"
        assert status["reason"] == "UnexpectedAdmissionError"
        assert "example.com/device. Requested: 1, Available: 0" in status["message"]

    play(story)


def test_a_silent_kubelet_does_nothing_and_goes_on_later() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(pod())
        await cluster.until(lambda: is_ready(current(cluster)))
        cluster.sim.disconnect("cpu-1")
        cluster.delete(current(cluster))
        await cluster.rest(200)
        assert is_terminating(current(cluster))
        assert not is_true(cluster.node("cpu-1"), "Ready")
        cluster.sim.reconnect("cpu-1")
        await cluster.until(lambda: cluster.store.find("pods", "ml", "p") is None, within=5)
        await cluster.until(lambda: not cluster.node("cpu-1")["spec"].get("taints"), within=5)

    play(story)


def test_pods_that_were_running_before_the_sandbox_are_taken_over_as_they_are() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(daemonset("agent"))
        await cluster.until(lambda: all_ready(cluster.pods()))
        before = name_of(cluster.pods()[0])
        cluster.sim.stop()
        later = Simulation(cluster.store, cluster.sim.world.random)
        later.start()
        cluster.sim = later
        await cluster.rest(5)
        assert [name_of(found) for found in cluster.pods()] == [before]
        assert all_ready(cluster.pods())

    play(story)


def test_a_plain_pod_costs_four_writes() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        await cluster.rest(1)
        before = cluster.writes
        cluster.add(pod())
        await cluster.rest(60)
        assert is_ready(current(cluster))
        # Created, bound, taken in by the kubelet, running and ready.
        assert cluster.writes - before == 4

    play(story)


def test_a_kubelet_reports_its_node_now_and_then_although_nothing_has_changed() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        await cluster.rest(300)
        versions = []
        for _ in range(3):
            versions.append(cluster.node("cpu-1")["metadata"]["resourceVersion"])
            await cluster.rest(300)
        assert len(set(versions)) == 3

    play(story)


def test_what_goes_wrong_is_told_in_events_that_count_up() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(pod("unhappy", annotations={RUN_SECONDS: "1", EXIT_CODE: "1"}), pod("homeless", nodeSelector={"zone": "x"}))
        await cluster.rest(120)
        told = {(event["involvedObject"]["name"], event["reason"]): event for event in cluster.store.list("events")}
        assert set(told) == {("unhappy", "BackOff"), ("homeless", "FailedScheduling")}
        assert told["homeless", "FailedScheduling"]["message"] == (
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.")

    play(story)


def test_a_node_that_says_nothing_of_itself_is_reported_by_its_kubelet() -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.add({"kind": "Node", "metadata": {"name": "bare"}})
        await cluster.until(lambda: is_ready(cluster.node("bare")), within=5)
        ready = condition(cluster.node("bare"), "Ready")
        assert ready is not None
        assert ready["lastHeartbeatTime"] == ready["lastTransitionTime"] == "2026-01-01T00:00:00Z"

    play(story)


def test_a_kubelet_leaves_conditions_of_others_as_they_are() -> None:
    async def story() -> None:
        cluster = Cluster()
        past = "2025-01-01T00:00:00Z"
        drained = {"type": "Drained", "status": "Unknown", "lastHeartbeatTime": past, "lastTransitionTime": past}
        disk = {"type": "DiskPressure", "status": "False"}
        cluster.add({"kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": [drained, disk]}})
        await cluster.until(lambda: is_ready(cluster.node("n")), within=5)
        assert condition(cluster.node("n"), "Drained") == drained
        await cluster.until(lambda: "lastHeartbeatTime" in (condition(cluster.node("n"), "DiskPressure") or {}), within=30)
        assert condition(cluster.node("n"), "Drained") == drained

    play(story)


MOUNTS = [
    ({"secret": {"secretName": "s"}}, 'secret "s" not found'),
    ({"configMap": {"name": "s"}}, 'configmap "s" not found'),
    ({"projected": {"sources": [{"secret": {"name": "s"}}]}}, 'secret "s" not found'),
]


@pytest.mark.parametrize(("source", "why"), MOUNTS)
def test_no_container_is_created_while_a_volume_is_missing(source: Object, why: str) -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(pod(volumes=[{"name": "v", **source}]))
        await cluster.rest(60)
        status = current(cluster)["status"]
        assert (status["phase"], status["containerStatuses"][0]["state"]) == (
            "Pending", {"waiting": {"reason": "ContainerCreating"}})
        assert [event["message"] for event in cluster.store.list("events", "ml") if event["reason"] == "FailedMount"] == [
            f'MountVolume.SetUp failed for volume "v" : {why}']
        for kind in ("Secret", "ConfigMap"):
            cluster.add({"apiVersion": "v1", "kind": kind, "metadata": {"name": "s", "namespace": "ml"}})
        await cluster.until(lambda: is_ready(current(cluster)))
        cluster.store.delete("secrets", "ml", "s")
        cluster.store.delete("configmaps", "ml", "s")
        await cluster.rest(60)
        assert is_ready(current(cluster)), "what runs has its volumes"

    play(story)


ENVIRONMENTS = [
    ({"envFrom": [{"secretRef": {"name": "s"}}]}, 'secret "s" not found'),
    ({"envFrom": [{"configMapRef": {"name": "s"}}]}, 'configmap "s" not found'),
    ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}, 'secret "s" not found'),
]


@pytest.mark.parametrize(("given", "why"), ENVIRONMENTS)
def test_a_container_waits_for_its_environment(given: Object, why: str) -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(pod(containers=[{"name": "main", "image": "i:1", **given}]))
        await cluster.rest(60)
        assert current(cluster)["status"]["containerStatuses"][0]["state"] == {
            "waiting": {"reason": "CreateContainerConfigError", "message": why}}
        cluster.add({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ml"}, "data": {"k": "eA=="}})
        cluster.add({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s", "namespace": "ml"}})
        await cluster.until(lambda: is_ready(current(cluster)))

    play(story)


def test_what_is_optional_may_be_missing_and_a_key_that_is_not_there_is_named() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        optional = {"secretName": "s", "optional": True}
        main = {"name": "main", "image": "i:1", "envFrom": [{"secretRef": {"name": "s", "optional": True}}]}
        cluster.add(pod("free", volumes=[{"name": "v", "secret": optional}], containers=[main]))
        await cluster.until(lambda: is_ready(current(cluster, "free")))
        cluster.add({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t", "namespace": "ml"}, "data": {"k": "eA=="}})
        cluster.add(pod("bound", volumes=[{"name": "v", "secret": {"secretName": "t", "items": [{"key": "l", "path": "l"}]}}]))
        await cluster.rest(60)
        (message,) = (event["message"] for event in cluster.store.list("events", "ml") if event["reason"] == "FailedMount")
        assert message.endswith("references non-existent secret key: l")

    play(story)


def test_what_is_no_reference_of_an_image_is_not_pulled() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(pod(containers=[{"name": "main", "image": "registry.example/web:1.2.3 -alpine"}]))
        await cluster.rest(60)
        (status,) = current(cluster)["status"]["containerStatuses"]
        assert status["state"]["waiting"]["reason"] == "InvalidImageName"
        assert status["state"]["waiting"]["message"].endswith("invalid reference format")

    play(story)


def test_a_pod_that_its_kubelet_evicts_has_failed_and_is_replaced_by_its_daemonset() -> None:
    async def story() -> None:
        cluster = Cluster(linux_node("cpu-1"))
        cluster.add(daemonset("d"))
        await cluster.until(lambda: all_ready(cluster.pods()))
        [old] = cluster.store.list("pods")
        seen: list[tuple[str, str]] = []

        def note(event: object) -> None:
            found = cluster.store.find("pods", old["metadata"]["namespace"], name_of(old))
            seen.append((found["status"]["phase"], found["status"].get("reason", "")) if found else ("gone", ""))

        cluster.store.subscribe(note, "pods")
        cluster.sim.kubelets.evict(old)
        await cluster.until(lambda: all_ready(cluster.pods()) and name_of(cluster.store.list("pods")[0]) != name_of(old))
        assert seen[0] == ("Failed", "Evicted")

    play(story)
