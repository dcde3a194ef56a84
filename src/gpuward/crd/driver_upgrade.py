"""The driver upgrade settings of ClusterPolicy and NVIDIADriver.

An absent part means the same as an empty one: no wait for jobs, pod deletion with its defaults, no drain. What an absent field
means stands in `model/policy.py`.
"""

from typing import Annotated, Final

from gpuward.crd.facts import DEFAULTED, IntOrString, NonNegative, Spec
from gpuward.model.policy import UpgradePolicy

_USUAL: Final = UpgradePolicy()


class WaitForCompletion(Spec, frozen=True, kw_only=True):
    """Wait for the pods that match a selector before their node is disturbed; 0 seconds waits for ever."""

    pod_selector: str = _USUAL.wait_for_completion.pod_selector
    timeout_seconds: Annotated[NonNegative, DEFAULTED] = _USUAL.wait_for_completion.timeout_seconds


class PodDeletion(Spec, frozen=True, kw_only=True):
    """Say how the pods that use a GPU are evicted; 0 seconds waits for ever."""

    force: Annotated[bool, DEFAULTED] = _USUAL.pod_deletion.force
    timeout_seconds: Annotated[NonNegative, DEFAULTED] = _USUAL.pod_deletion.timeout_seconds
    delete_empty_dir: Annotated[bool, DEFAULTED] = _USUAL.pod_deletion.delete_empty_dir


class Drain(Spec, frozen=True, kw_only=True):
    """Say whether and how a node is drained; 0 seconds waits for ever."""

    enable: Annotated[bool, DEFAULTED] = _USUAL.drain.enable
    force: Annotated[bool, DEFAULTED] = _USUAL.drain.force
    pod_selector: str = _USUAL.drain.pod_selector
    timeout_seconds: Annotated[NonNegative, DEFAULTED] = _USUAL.drain.timeout_seconds
    delete_empty_dir: Annotated[bool, DEFAULTED] = _USUAL.drain.delete_empty_dir


class DriverUpgradePolicy(Spec, frozen=True, kw_only=True):
    """Govern driver upgrades: whether, how many nodes at once, and how a node is cleared."""

    auto_upgrade: Annotated[bool, DEFAULTED] = _USUAL.auto_upgrade
    max_parallel_upgrades: Annotated[NonNegative, DEFAULTED] = _USUAL.max_parallel_upgrades
    max_unavailable: Annotated[IntOrString, DEFAULTED] = str(_USUAL.max_unavailable)
    wait_for_completion: WaitForCompletion = WaitForCompletion()
    pod_deletion: PodDeletion = PodDeletion()
    drain: Drain = Drain()


class NVIDIADriverUpgradePolicy(DriverUpgradePolicy, frozen=True, kw_only=True):
    """Govern the upgrades of an NVIDIADriver's nodes, which are automatic unless turned off."""

    auto_upgrade: Annotated[bool, DEFAULTED] = True
