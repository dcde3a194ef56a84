"""What drivers follow from in a run: the ClusterPolicy, or NVIDIADrivers. Both are edited alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpuward import names
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE, cpu_node, gpu_node
from gpuward.sandbox.gpus import gpus_wanted
from tools.simulate import modes
from tools.simulate.modes import MODES, Mode
from tools.simulate.people import POLICIES, POLICY, People, is_driver
from tools.simulate.policies import NVIDIA_DRIVERS, RACK, VERSIONS, policy_in_force, rack_of

if TYPE_CHECKING:
    from random import Random

    from tools.simulate.scenario import Fault
    from tools.simulate.watch import Watch

Object = dict[str, Any]
DRIVERS: Final = NVIDIA_DRIVERS


class Governor(NamedTuple):
    """Name the object that a driver's version and the rules of its upgrade are in."""

    resource: str
    name: str

    def spec_of(self, obj: Object) -> Object:
        """Return the part of the object that is about the driver: both kinds have version, upgradePolicy and resources there."""
        found: Object = obj["spec"]["driver"] if self.resource == POLICIES else obj["spec"]
        return found


CLUSTER_POLICY: Final = Governor(POLICIES, POLICY)


class Drives(People):
    """Act on the policies that drivers follow from, and on the machines that the drivers are for."""

    watch: Watch

    def __init__(self) -> None:
        self.former_versions: dict[Governor, str] = {}
        """The driver versions that were asked for before."""
        self.discovered: dict[str, Object] = {}
        """What discovery found on each node, where nobody has meddled with it."""

    @property
    def mode(self) -> Mode:
        """Return where drivers come from in this run."""
        return MODES[self.scenario.mode]

    # Policies.

    def cluster_policy(self) -> Object | None:
        """Return the ClusterPolicy, None where there is none."""
        return self.sandbox.store.find(POLICIES, None, POLICY)

    def policy_in_force(self) -> Object | None:
        """Return the ClusterPolicy that is followed, as is documented: the oldest that is not being deleted."""
        return policy_in_force(self.sandbox.store.list(POLICIES))

    def uses_crd(self) -> bool:
        """Tell whether drivers are left to NVIDIADrivers; without a ClusterPolicy that is so where there are any."""
        policy = self.cluster_policy()
        if policy is None:
            return bool(self.driver_names())
        return bool(policy["spec"]["driver"].get("useNvidiaDriverCRD"))

    def driver_names(self) -> list[str]:
        """Return the names of the NVIDIADrivers there are."""
        return [obj["metadata"]["name"] for obj in self.sandbox.store.list(DRIVERS)]

    def governors(self) -> list[Governor]:
        """Return what drivers follow from now."""
        found = [Governor(DRIVERS, name) for name in self.driver_names()] if self.uses_crd() else []
        return found or ([CLUSTER_POLICY] if self.cluster_policy() is not None else [])

    def all_governors(self) -> list[Governor]:
        """Return the ClusterPolicy and all NVIDIADrivers, whether drivers follow from them or not."""
        found = [CLUSTER_POLICY] if self.cluster_policy() is not None else []
        return found + [Governor(DRIVERS, name) for name in self.driver_names()]

    def annotate(self, governor: Governor, key: str, value: str | None) -> None:
        """Annotate what drivers follow from, or take an annotation away."""

        def change(obj: Object) -> None:
            annotations = obj["metadata"].setdefault("annotations", {})
            annotations.pop(key, None)
            if value is not None:
                annotations[key] = value

        if self.sandbox.store.find(governor.resource, None, governor.name) is not None:
            self.sandbox.store.modify(governor.resource, None, governor.name, change)

    def governor(self, fault: Fault) -> Governor | None:
        """Choose one of them."""
        return self.pick(self.governors(), fault)

    def governor_of(self, node: str) -> Governor | None:
        """Return what a node's driver follows from, by its label of the owner."""
        if not self.uses_crd():
            return CLUSTER_POLICY if self.cluster_policy() is not None else None
        owner = self.node(node)["metadata"].get("labels", {}).get(names.DRIVER_OWNER, "")
        return Governor(DRIVERS, owner) if owner in self.driver_names() else None

    def change_driver(self, governor: Governor, change: Callable[[Object], None]) -> None:
        """Edit what is said about a driver."""
        self.sandbox.store.modify(governor.resource, None, governor.name, lambda obj: change(governor.spec_of(obj)))

    def driver_spec(self, governor: Governor) -> Object:
        """Return what is said about a driver."""
        return governor.spec_of(self.sandbox.store.get(governor.resource, None, governor.name))

    def upgrade_of(self, governor: Governor) -> Object:
        """Return the upgrade policy as it is written."""
        return dict(self.driver_spec(governor).get("upgradePolicy") or {})

    def ask_for_version(self, governor: Governor, version: str) -> None:
        """Ask for a driver version, and remember the one before."""
        before = str(self.driver_spec(governor)["version"])
        if version != before:
            self.former_versions[governor] = before
        self.change_driver(governor, lambda spec: spec.update(version=version))

    def ask_for_another(self, governor: Governor, level: float) -> str:
        """Ask for another driver version than now, newer or older, and return it."""
        offered = modes.BRANCHES if self.is_precompiled(governor) else VERSIONS
        versions = [version for version in offered if version != self.driver_spec(governor)["version"]]
        version = versions[int(level * len(versions))]
        self.ask_for_version(governor, version)
        return version

    def is_precompiled(self, governor: Governor) -> bool:
        """Tell whether drivers are precompiled."""
        return bool(self.driver_spec(governor).get("usePrecompiled"))

    def add_driver(self, name: str, random: Random, *, precompiled: bool = False) -> None:
        """Write an NVIDIADriver."""
        self.sandbox.apply(modes.nvidia_driver(name, random, precompiled=precompiled))

    def remove_driver(self, name: str, propagation: str = "Background") -> None:
        """Delete an NVIDIADriver, which takes its drivers away at once."""
        if self.sandbox.store.find(DRIVERS, None, name) is not None:
            self.sandbox.store.delete(DRIVERS, None, name, propagation=propagation)

    # Machines.

    def add_machine(self, name: str, model: str, kernel: str = "", system: str = "ubuntu22.04") -> None:
        """Add a node with GPUs as discovery finds it; precompiled drivers are for machines of one operating system here."""
        alike = self.mode.precompiled or modes.PRECOMPILED in self.mode.switches
        node = gpu_node(name, model, "ubuntu22.04" if alike else system)
        labels = node["metadata"]["labels"]
        if kernel and alike:
            labels[names.NFD_KERNEL] = kernel
            node["status"]["nodeInfo"]["kernelVersion"] = kernel
        self.discovered[name] = {key: value for key, value in labels.items() if key.startswith(names.NFD_PREFIX)}
        pool = modes.POOLS[sum(name.encode()) % 2]
        labels[modes.POOL] = pool
        labels[RACK] = rack_of(name)
        self.sandbox.add_node(node)

    def add_gpu_node(self, name: str) -> None:
        """Add a node with GPUs."""
        self.add_machine(name, "A100", modes.KERNELS[sum(name.encode()) % self.mode.kernels])

    def rediscover(self, name: str) -> None:
        """Let discovery label a node as it is."""
        found = self.discovered.get(name) or cpu_node(name)["metadata"]["labels"]

        def change(node: Object) -> None:
            labels = node["metadata"].setdefault("labels", {})
            for key in [key for key in labels if key.startswith(names.NFD_PREFIX)]:
                del labels[key]
            labels.update(found)

        self.change_node(name, change)

    def reboot(self, name: str, kernel: str) -> None:
        """Start a machine anew with a kernel: nothing is loaded, and every container begins again."""
        self.discovered[name] = {**self.discovered.get(name, {}), names.NFD_KERNEL: kernel}
        self.tell_kernel(name, kernel)
        self.sandbox.reboot(name)
        self.rediscover(name)

    def tell_kernel(self, name: str, kernel: str) -> None:
        """Let a node's kubelet tell of a kernel; does nothing while there is no such node."""
        if self.sandbox.store.find("nodes", None, name) is None:
            return
        self.sandbox.store.patch_status("nodes", None, name, lambda node: node["status"]["nodeInfo"].update(kernelVersion=kernel))

    # What is there.

    def gpu_users(self, node: str) -> dict[str, bool]:
        """Return the pods on a node that must go before the driver does, and whether they only hold the driver."""
        found = {}
        for pod in self.sandbox.store.lookup("pods", "node", node):
            if pod["metadata"]["namespace"] != WORKLOAD_NAMESPACE or pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            uses_gpu = bool(gpus_wanted(pod["spec"])) or self.claims_gpus(pod)
            if uses_gpu or "holds" in (pod["metadata"].get("labels") or {}):
                found[pod["metadata"]["name"]] = not uses_gpu
        return found

    def has_driver_pod(self, node: str, version: int) -> bool:
        """Tell whether a node has had a driver pod since before a version, and still has it."""
        return any(is_driver(pod) and 0 < self.watch.bound_at(pod) <= version
                   for pod in self.sandbox.store.lookup("pods", "node", node))

    def has_driver_daemonset(self, node: str, version: int) -> bool:
        """Tell whether a driver DaemonSet for a node that there was at a version is still there and stays."""
        labels = (self.node(node)["metadata"].get("labels") or {}).items()
        staying = (ds["metadata"]["uid"] for ds in self.sandbox.store.list("daemonsets.apps")
                   if not ds["metadata"].get("deletionTimestamp")
                   and (ds["spec"]["template"]["spec"].get("nodeSelector") or {}).items() <= labels)
        return any(self.watch.driver_daemonsets.get(uid, version + 1) <= version for uid in staying)
