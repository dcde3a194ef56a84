"""Why a driver leaves a machine: who deleted its pod, or did what made Kubernetes delete it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuward import names
from gpuward.model.reading import read_time
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from gpuward.sandbox.machine import GpuMachine
from tools.simulate.made import CLUSTER, PEOPLE
from tools.simulate.people import DAEMONSETS, POLICIES

if TYPE_CHECKING:
    from kubesandbox.store import Event
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

OURS: Final = ("nvidia.com/", "gpuward.io/")
"""Labels that the operator sets: people who change one by hand take the driver off at once, as is documented."""
BY_OPERANDS: Final = frozenset({names.DEPLOY_DRIVER, names.GPU_PRESENT})
"""Labels that the operator takes away where people want no operands."""
JUST_READY: Final = 10.0
"""Seconds for which an operator may not have seen that a driver pod is ready, while watches lag and answers take seconds."""
LATE: Final = 60.0
"""Seconds after which what people asked for and took back cannot be the cause of anything any more."""


ALONE: Final = 60.0
"""Seconds within which a ClusterPolicy that came may have yet to own the DaemonSets of NVIDIADrivers."""


class Leaving:
    """Say of each driver pod that goes whose doing it is, and what that does to its machine."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._labelled: dict[tuple[str, str], str] = {}
        self._selecting: dict[str, str] = {}
        self._policies: set[str] = set()
        self._alone = float("-inf")
        """When there may have been no ClusterPolicy last, or one of which no operator knew."""
        self._changed = 0
        """The version with which one came or went last."""
        self._emptied: dict[str, float] = {}
        """When people last took the operands off a node."""

    def changed(self, event: Event, actor: str) -> None:
        """Take a change of the store."""
        if self._world.now() - self._alone < ALONE and not (self._world.running() and self._is_shown()):
            self._alone = self._world.now()
        if event.resource_key == "nodes":
            self._node_changed(event, actor)
        elif event.resource_key == DAEMONSETS and (event.old is None or _selector(event.old) != _selector(event.obj)):
            self._selecting[event.obj["metadata"]["uid"]] = actor
        elif event.resource_key == POLICIES and (event.type != "MODIFIED" or event.obj["metadata"].get("deletionTimestamp")):
            self._alone = self._world.now()
            self._policies.add(event.obj["metadata"]["uid"])
            self._changed = int(event.obj["metadata"]["resourceVersion"])

    def _is_shown(self) -> bool:
        """Tell whether who leads has been shown the ClusterPolicy that came or went last: a watch may be silent for minutes."""
        return all(process.known["policies"] >= self._changed for process in self._world.running())

    def _node_changed(self, event: Event, actor: str) -> None:
        name, before = event.obj["metadata"]["name"], _labels(event.old) if event.old is not None else {}
        after = _labels(event.obj)
        for key in before.keys() | after.keys():
            if before.get(key) != after.get(key):
                self._labelled[name, key] = actor
        told = before.get(names.DEPLOY_OPERANDS) == "false" or after.get(names.DEPLOY_OPERANDS) == "false"
        if told or (actor == PEOPLE and any(before.get(key) != after.get(key) for key in BY_OPERANDS)):
            self._emptied[name] = self._world.now()

    def blame(self, pod: Object, actor: str) -> str:
        """Return what took the driver off its machine, empty where people did, by that very pod or in a documented way."""
        node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
        found = self._world.sandbox.store.find("nodes", None, node)
        if actor != CLUSTER or found is None or uid in self._world.made.edited:
            return ""  # what a process deletes is held to its last look
        if any(taint.get("effect") == "NoExecute" for taint in found["spec"].get("taints") or ()):
            return ""
        owner = next((ref for ref in pod["metadata"].get("ownerReferences") or () if ref.get("controller")), None)
        if owner is None:
            return "nobody owns it, and Kubernetes deleted it"
        daemonset = self._world.sandbox.store.find(DAEMONSETS, names.DEFAULT_NAMESPACE, owner["name"])
        if daemonset is None or daemonset["metadata"]["uid"] != owner["uid"] or daemonset["metadata"].get("deletionTimestamp"):
            return self._of_deletion(owner)
        if self._runs_another_kernel(pod, found):
            return ""
        return self._of_selection(daemonset, found)

    def _runs_another_kernel(self, pod: Object, node: Object) -> bool:
        """Tell whether a node's kubelet tells of another kernel than a driver pod is for that was not ready a moment ago: after a
        reboot it never would be, and only here do kubelets tell of a kernel that no machine has booted.
        """
        told, labels = node["status"]["nodeInfo"].get("kernelVersion"), _labels(node)
        wanted = (pod["spec"].get("nodeSelector") or {}).get(names.DRIVER_KERNEL)
        if wanted is None or told == wanted or labels.get(names.DRIVER_KERNEL) != told:
            return False
        ready = (each for each in pod["status"].get("conditions") or () if each["type"] == "Ready" and each["status"] == "True")
        since = next((read_time(each["lastTransitionTime"]) for each in ready), float("inf"))
        return self._world.now() - since < JUST_READY

    def is_unseen(self, node: str) -> bool:
        """Tell whether discovery sees no GPU on a node: after a while its operands go, unless they are used."""
        found = self._world.sandbox.store.find("nodes", None, node)
        return found is not None and not any(_labels(found).get(key) == "true" for key in names.NFD_GPU_LABELS)

    def _of_deletion(self, owner: Object) -> str:
        made, uid = self._world.made, owner["uid"]
        culprit = made.culprit(uid)
        if culprit == PEOPLE and (made.ended_by.get(uid) == PEOPLE or uid in made.edited or self._went_with_a_policy(uid)):
            return ""
        return f"DaemonSet {owner['name']} was deleted by {culprit or 'nobody'}"

    def _went_with_a_policy(self, uid: str) -> bool:
        """Tell whether Kubernetes deleted a DaemonSet with the ClusterPolicy: with an NVIDIADriver alone none goes, but where no
        ClusterPolicy was there to keep it.
        """
        found = self._world.sandbox.store.list(POLICIES)
        living = {policy["metadata"]["uid"] for policy in found if not policy["metadata"].get("deletionTimestamp")}
        return not living or self._world.now() - self._alone < ALONE or any(
            cause in self._policies for cause in self._world.made.causes.get(uid, ()))

    def _of_selection(self, daemonset: Object, node: Object) -> str:
        uid, name, labels = daemonset["metadata"]["uid"], node["metadata"]["name"], _labels(node)
        wrong = [key for key, value in _selector(daemonset).items() if labels.get(key) != value]
        if not wrong and uid in self._world.made.edited and daemonset["spec"]["updateStrategy"].get("type") != "OnDelete":
            return ""  # people let Kubernetes itself replace its pods
        if not wrong:
            return f"DaemonSet {daemonset['metadata']['name']} deleted it although it selects the node"
        if self._selecting.get(uid) == PEOPLE or uid in self._world.made.edited:
            return ""
        for key in wrong:
            actor = self._labelled.get((name, key), "nobody")
            if actor == PEOPLE and key.startswith(OURS):
                return ""
            if key in BY_OPERANDS and self._is_recent(self._emptied.get(name, float("-inf"))):
                return ""
        told = ", ".join(f"{key}={labels.get(key)} (by {self._labelled.get((name, key), 'nobody')})" for key in wrong)
        return f"DaemonSet {daemonset['metadata']['name']} selects its node no longer: {told}"

    def _is_recent(self, instant: float) -> bool:
        return self._world.now() - instant < LATE


def users_of(machine: GpuMachine) -> list[str]:
    """Return the pods of users that have GPUs of a machine open."""
    return sorted(who for who in machine.users.values() if who.startswith(f"{WORKLOAD_NAMESPACE}/"))


def _labels(obj: Object) -> Object:
    return obj["metadata"].get("labels") or {}


def _selector(daemonset: Object) -> Object:
    return daemonset["spec"]["template"]["spec"].get("nodeSelector") or {}
