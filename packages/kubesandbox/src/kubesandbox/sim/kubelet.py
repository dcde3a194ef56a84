"""The kubelets: run the pods that are bound to their nodes, report them, and end them when they are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubesandbox.sim.containers import NEVER, PodRun
from kubesandbox.sim.demands import quantity, requests_of
from kubesandbox.sim.faults import Fault, FaultKind
from kubesandbox.sim.machine import NFD_KERNEL, Machine
from kubesandbox.sim.objects import (
    FINISHED,
    KUBELET_CONDITIONS,
    Object,
    annotations_of,
    condition,
    is_finished,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    phase_of,
    seconds,
    stamp,
    uid_of,
    with_condition,
)
from kubesandbox.sim.podstatus import complaints, pod_status
from kubesandbox.sim.recorder import Recorder

if TYPE_CHECKING:
    from kubesandbox.sim.world import World
    from kubesandbox.store import Event

QUEUE: Final = "kubelet"
HEARTBEAT_QUEUE: Final = "heartbeat"
PLUGIN_QUEUE: Final = "register-plugins"
WITHDRAWN_QUEUE: Final = "withdrawn-resources"
PLUGIN_GRACE: Final = 300.0
"""Seconds for which a kubelet keeps the capacity that a device plugin had offered, once that has gone."""
NFD_QUEUE: Final = "node-feature-discovery"
TERMINATION_SECONDS: Final = "kubesandbox/termination-seconds"
"""Pod annotation: how long the containers take to end when told to; their grace period still bounds it."""
SHORTAGE: Final = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi."


class Kubelets:
    """Be the kubelet of every node."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._recorder = Recorder(world, "kubelet")
        self.machines: dict[str, Machine] = {}
        self._runs: dict[str, PodRun] = {}
        self._on: dict[str, dict[str, PodRun]] = {}
        self._down: set[str] = set()
        self._rhythm: dict[str, float] = {}
        self._addresses = 0
        world.queue.register(QUEUE, self.sync)
        world.queue.register(HEARTBEAT_QUEUE, self._beat)
        world.queue.register(PLUGIN_QUEUE, self._register_plugins)
        world.queue.register(WITHDRAWN_QUEUE, self._forget_capacity)
        world.queue.register(NFD_QUEUE, self._discover)
        world.faults.listen(self._fault_changed)
        world.store.subscribe(self._node_changed, "nodes")
        world.store.subscribe(self._pod_changed, "pods")
        for node in world.store.list("nodes"):
            self._boot(node)
        for pod in world.store.list("pods"):
            self._adopt(pod)

    # The node itself.

    def set_alive(self, node: str, alive: bool) -> None:
        """Stop a node's kubelet (nothing starts, ends or is reported any more) or let it go on."""
        if alive:
            self._down.discard(node)
            self.report_ready(node, True)
            self._world.queue.add(WITHDRAWN_QUEUE, node)
        else:
            self._down.add(node)
        for uid in self._on.get(node, {}):
            self._world.queue.add(QUEUE, uid)
        for pod in self._world.pods.on_node(node):
            self._world.queue.add(QUEUE, uid_of(pod))

    def report_ready(self, node: str, ready: bool) -> None:
        """Report a node as Ready or not; does nothing while its kubelet is stopped."""
        if node in self._down:
            return
        verdict = {"type": "Ready", "status": str(ready), "reason": "KubeletReady" if ready else "KubeletNotReady",
                   "message": "kubelet is posting ready status" if ready else "container runtime network not ready",
                   "lastHeartbeatTime": stamp(self._world.now())}

        def change(obj: Object) -> None:
            conditions = [
                {**found, "status": "False"}
                if found["status"] == "Unknown" and found["type"] in KUBELET_CONDITIONS and found["type"] != "Ready" else found
                for found in obj["status"].get("conditions") or ()]
            obj["status"]["conditions"] = with_condition(conditions, verdict, self._world.now())
        self._world.store.patch_status("nodes", None, node, change)
        if ready:  # the node lifecycle controller has called its pods not ready meanwhile, and nobody else takes that back
            for pod in self._world.pods.on_node(node):
                self._world.queue.add(QUEUE, uid_of(pod))

    def remove(self, node: str) -> None:
        """Take a machine away with all that runs on it."""
        machine = self.machines.pop(node, None)
        if machine is not None:
            machine.restart()
        self._down.discard(node)
        for uid in self._on.pop(node, {}):
            del self._runs[uid]

    def register_node(self, node: str) -> Object:
        """Make the Node of a machine again as its kubelet does, with that one's labels; discovery's follow."""
        machine = self.machines[node]
        made = self._world.store.create("nodes", {
            "metadata": {"name": node, "labels": machine.kubelet_labels}, "spec": {}, "status": machine.status})
        self._world.queue.add_at(NFD_QUEUE, node, self._world.now() + self._world.delays.nfd_seconds)
        return made

    def reboot(self, node: str, kernel: str = "") -> None:
        """Boot a machine anew, into another kernel if one is named; its pods start again, those with devices are refused."""
        machine, store, is_device = self.machines[node], self._world.store, self._world.hardware.is_device
        machine.restart()
        for uid in self._on.pop(node, {}):
            del self._runs[uid]

        def change(obj: Object) -> None:
            status = obj["status"]
            status["nodeInfo"] = {**status["nodeInfo"], "bootID": f"{status['nodeInfo']['bootID']}+"}
            if kernel:
                status["nodeInfo"]["kernelVersion"] = kernel
            status["allocatable"] = {name: "0" if is_device(name) else value for name, value in status["allocatable"].items()}
        if store.find("nodes", None, node) is not None:
            store.patch_status("nodes", None, node, change)
        if kernel:
            machine.features[NFD_KERNEL] = kernel
            self._world.queue.add_at(NFD_QUEUE, node, self._world.now() + self._world.delays.nfd_seconds)
        for pod in list(self._world.pods.on_node(node)):
            if not is_finished(pod):
                self._begin(pod).rejected = self._refusal(pod)
                self._world.queue.add(QUEUE, uid_of(pod))

    def _discover(self, node: str) -> None:
        if node in self.machines and self._world.store.find("nodes", None, node) is not None:
            features = self.machines[node].features
            self._world.store.modify("nodes", None, node, lambda obj: obj["metadata"].update(
                labels={**labels_of(obj), **features}))

    def _register_plugins(self, node: str) -> None:
        for run in list(self._on.get(node, {}).values()):
            for container in run.containers:
                if container.program is not None:
                    container.program.registered()

    def _boot(self, node: Object) -> None:
        name = name_of(node)
        if name in self.machines:
            # The machine is the one that it was; its kubelet has made another Node of it.
            self._down.discard(name)
            self._world.queue.add_at(PLUGIN_QUEUE, name, self._world.now() + self._world.delays.plugin_seconds)
        else:
            self.machines[name] = self._world.hardware.machine(node, lambda: self._machine_changed(name), self._world.now)
        self._world.queue.add(HEARTBEAT_QUEUE, name)
        # Later reports come at the node's own moments, not all nodes' at once.
        self._rhythm[name] = self._world.random.uniform(0.5, 1.0)

    def _beat(self, node: str) -> None:
        found = self._world.store.find("nodes", None, node)
        if node not in self.machines or found is None:
            return
        if node not in self._down:
            if condition(found, "Ready") is None:
                self.report_ready(node, True)
            now = stamp(self._world.now())
            self._world.store.patch_status("nodes", None, node, lambda obj: obj["status"].update(conditions=[
                {**found, "lastHeartbeatTime": now, "lastTransitionTime": found.get("lastTransitionTime") or now}
                if found["type"] in KUBELET_CONDITIONS else found
                for found in obj["status"].get("conditions") or ()]))
        if period := self._world.delays.heartbeat_seconds:
            instant = self._world.now() + period * self._rhythm.pop(node, 1.0)
            self._world.queue.add_at(HEARTBEAT_QUEUE, node, instant)

    def _forget_capacity(self, node: str) -> None:
        """Report no capacity of a resource any more whose device plugin has been gone for long."""
        machine, now = self.machines.get(node), self._world.now()
        if machine is None or node in self._down or self._world.store.find("nodes", None, node) is None:
            return
        if later := [at + PLUGIN_GRACE for at in machine.withdrawn.values() if at + PLUGIN_GRACE > now]:
            self._world.queue.add_at(WITHDRAWN_QUEUE, node, min(later))
        if over := [resource for resource, at in machine.withdrawn.items() if at + PLUGIN_GRACE <= now]:
            for resource in over:
                del machine.withdrawn[resource]
            self._world.store.patch_status("nodes", None, node, lambda obj: obj["status"].update(
                capacity={**(obj["status"].get("capacity") or {}), **dict.fromkeys(over, "0")}))

    def _node_changed(self, event: Event) -> None:
        name = name_of(event.obj)
        if event.type == "ADDED":
            self._boot(event.obj)
            for pod in self._world.pods.on_node(name):
                self._world.queue.add(QUEUE, uid_of(pod))
        elif event.type == "MODIFIED" and event.old is not None and _capacity(event.old) != _capacity(event.obj):
            self._machine_changed(name)

    def _machine_changed(self, node: str) -> None:
        for uid, run in self._on.get(node, {}).items():
            if run.waits:
                self._world.queue.add(QUEUE, uid)

    def _fault_changed(self, fault: Fault) -> None:
        for uid, run in self._runs.items():
            if fault.node in ("*", run.machine.node) or "*" in fault.node:
                self._world.queue.add(QUEUE, uid)

    # The pods.

    def log(self, uid: str, container: str) -> list[str]:
        """Return what a container's program has written since its last start; nothing of a pod that does not run any more."""
        run = self._runs.get(uid)
        return next((one.lines for one in run.containers if one.name == container), []) if run is not None else []

    def _pod_changed(self, event: Event) -> None:
        pod, old = event.obj, event.old
        node = node_of(pod)
        if not node:
            return
        if event.type == "DELETED":
            self._machine_changed(node)
        elif old is not None and node_of(old) == node and old["metadata"].get("deletionTimestamp") == pod["metadata"].get(
                "deletionTimestamp"):
            return
        self._world.queue.add(QUEUE, uid_of(pod))

    def _adopt(self, pod: Object) -> None:
        if node_of(pod) in self.machines and phase_of(pod) == "Running":
            self._begin(pod).adopt(self._world.now())
        if node_of(pod):
            self._world.queue.add(QUEUE, uid_of(pod))

    def sync(self, uid: str) -> None:
        """Get one pod as far as it can go now, and report it."""
        pod, run = self._world.pods.by_uid.get(uid), self._runs.get(uid)
        if pod is None:
            self._let_ghost_go(uid, run)
            return
        node = node_of(pod)
        if node not in self.machines or node in self._down:
            return
        if is_terminating(pod):
            self._stop(pod, run)
        elif run is not None or not is_finished(pod):
            self._run(pod, run or self._begin(pod))

    def _begin(self, pod: Object) -> PodRun:
        self._addresses += 1
        node, number = node_of(pod), self._addresses
        ip = f"10.{64 + number // 65536 % 128}.{number // 256 % 256}.{number % 256}"
        run = PodRun(self._world, self.machines[node], pod, ip, self._world.now())
        self._runs[uid_of(pod)] = run
        self._on.setdefault(node, {})[uid_of(pod)] = run
        run.rejected = self._refusal(pod) if phase_of(pod) == "Pending" else ""
        return run

    def _refusal(self, pod: Object) -> str:
        """Return why the kubelet cannot admit a pod: a device that the scheduler saw may have gone since."""
        is_device = self._world.hardware.is_device
        wanted = {name: value for name, value in requests_of(pod["spec"]).items() if is_device(name) and value}
        if not wanted:
            return ""
        node = self._world.store.find("nodes", None, node_of(pod)) or {}
        for name, value in wanted.items():
            there = quantity(((node.get("status") or {}).get("allocatable") or {}).get(name, "0"))
            taken = sum(requests_of(other["spec"]).get(name, 0.0) for other in self._world.pods.on_node(node_of(pod))
                        if not is_finished(other))
            if taken > there:
                return (f"UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for "
                        f"{name}. Requested: {value:.0f}, Available: {max(0.0, there - taken + value):.0f}, "
                        "which is unexpected")
        return ""

    def _run(self, pod: Object, run: PodRun) -> None:
        now, unmounted = self._world.now(), run.unmounted
        wake = NEVER if run.rejected else run.advance(now)
        self._report(pod, run, now)
        if run.unmounted and run.unmounted != unmounted:
            self._recorder.warn(pod, "FailedMount", run.unmounted, run.machine.node)
        if wake < NEVER:
            self._world.queue.add_at(QUEUE, uid_of(pod), wake)
        if run.phase in FINISHED:
            self._forget(uid_of(pod), run)
            self._machine_changed(run.machine.node)

    def _report(self, pod: Object, run: PodRun, now: float) -> None:
        old = pod.get("status") or {}
        status = pod_status(run, old, self._host_ip(run.machine.node), now)
        if status == old:
            return
        self._world.store.patch_status("pods", namespace_of(pod), name_of(pod), lambda obj: obj.update(status=status))
        for complaint in complaints(status, old):
            self._recorder.warn(pod, *complaint, run.machine.node)

    def _host_ip(self, node: str) -> str:
        found = self._world.store.find("nodes", None, node) or {}
        for address in (found.get("status") or {}).get("addresses") or ():
            if address["type"] == "InternalIP":
                ip: str = address["address"]
                return ip
        return ""

    # The end of a pod.

    def evict(self, pod: Object) -> None:
        """End a pod that runs because its node is short of something, asking nobody, and leave it as a failed one."""
        run = self._runs.get(uid_of(pod))
        if run is None or is_terminating(pod):
            return
        run.evicted = SHORTAGE
        run.stop()
        run.end()
        self._forget(uid_of(pod), run)
        self._report(pod, run, self._world.now())
        self._machine_changed(run.machine.node)

    def _stop(self, pod: Object, run: PodRun | None) -> None:
        now, uid = self._world.now(), uid_of(pod)
        deadline = _over_at(pod, run, now)
        if run is not None and run.stop_at is None:
            run.stop()
            run.stop_at = NEVER if run.ignores_stop else now + self._termination(pod)
        # A pod that has no process to end, as after a reboot, or whose grace is over, goes at once.
        runs = run is not None and run.has_sandbox
        if runs and self._world.faults.hits(FaultKind.STUCK_TERMINATING, node_of(pod), name_of(pod), namespace=namespace_of(pod)):
            return
        until = now if run is None or not runs or run.stop_at is None else min(run.stop_at, deadline)
        if now < until - 1e-6:
            self._world.queue.add_at(QUEUE, uid, until)
            return
        if run is not None:
            run.end()
            self._forget(uid, run)
        self._world.store.delete("pods", namespace_of(pod), name_of(pod), uid=uid, grace_seconds=0)

    def _termination(self, pod: Object) -> float:
        return float(annotations_of(pod).get(TERMINATION_SECONDS, self._world.delays.termination_seconds))

    def _let_ghost_go(self, uid: str, run: PodRun | None) -> None:
        """End the processes of a pod that was deleted without waiting for them; they still need their time."""
        if run is None:
            return
        if run.machine.node in self._down:
            return
        now = self._world.now()
        if run.stop_at is None:
            run.stop()
            run.stop_at = now + self._termination(run.pod)
        if run.has_sandbox and now < run.stop_at - 1e-6:
            self._world.queue.add_at(QUEUE, uid, run.stop_at)
            return
        run.end()
        self._forget(uid, run)

    def _forget(self, uid: str, run: PodRun) -> None:
        self._runs.pop(uid, None)
        self._on.get(run.machine.node, {}).pop(uid, None)


def _capacity(node: Object) -> Object:
    found: Object = (node.get("status") or {}).get("capacity") or {}
    return found


def _over_at(pod: Object, run: PodRun | None, now: float) -> float:
    """Return when the pod's grace is over. One that is shortened counts from when the kubelet hears of it."""
    meta = pod["metadata"]
    grace = meta.get("deletionGracePeriodSeconds") or 0
    if run is not None and run.grace is not None and grace < run.grace:
        run.shortened_to = now + grace
    if run is not None:
        run.grace = grace
        if run.shortened_to is not None:
            return run.shortened_to
    return seconds(meta["deletionTimestamp"])
