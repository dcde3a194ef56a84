"""The driver upgrade settings of ClusterPolicy and NVIDIADriver.

An absent part means the same as an empty one: no wait for jobs, pod deletion with its defaults, no drain.
"""

from typing import Annotated

from gpuward.crd.facts import DEFAULTED, IntOrString, NonNegative, Spec


class WaitForCompletion(Spec, frozen=True, kw_only=True):
    """Wait for the pods that match a selector before their node is disturbed; 0 seconds waits for ever."""

    pod_selector: str = ""
    timeout_seconds: Annotated[NonNegative, DEFAULTED] = 0


class PodDeletion(Spec, frozen=True, kw_only=True):
    """Say how the pods that use a GPU are evicted; 0 seconds waits for ever."""

    force: Annotated[bool, DEFAULTED] = False
    timeout_seconds: Annotated[NonNegative, DEFAULTED] = 300
    delete_empty_dir: Annotated[bool, DEFAULTED] = False


class Drain(Spec, frozen=True, kw_only=True):
    """Say whether and how a node is drained; 0 seconds waits for ever."""

    enable: Annotated[bool, DEFAULTED] = False
    force: Annotated[bool, DEFAULTED] = False
    pod_selector: str = ""
    timeout_seconds: Annotated[NonNegative, DEFAULTED] = 300
    delete_empty_dir: Annotated[bool, DEFAULTED] = False


class DriverUpgradePolicy(Spec, frozen=True, kw_only=True):
    """Govern driver upgrades: whether, how many nodes at once, and how a node is cleared."""

    auto_upgrade: Annotated[bool, DEFAULTED] = False
    max_parallel_upgrades: Annotated[NonNegative, DEFAULTED] = 1
    max_unavailable: Annotated[IntOrString, DEFAULTED] = "25%"
    wait_for_completion: WaitForCompletion = WaitForCompletion()
    pod_deletion: PodDeletion = PodDeletion()
    drain: Drain = Drain()


class NVIDIADriverUpgradePolicy(DriverUpgradePolicy, frozen=True, kw_only=True):
    """Govern the upgrades of an NVIDIADriver's nodes, which are automatic unless turned off."""

    auto_upgrade: Annotated[bool, DEFAULTED] = True
