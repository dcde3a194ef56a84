"""What might help a node on which a pod of another operand than the driver fails: what it complains about is mended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial, reduce
from shlex import quote
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.troubles import trouble_of
from gpuward.model.views import PodView
from gpuward.upgrade.remedies.fixes import Fix, with_ready
from gpuward.upgrade.remedies.question import Candidate, Question

replace = msgspec.structs.replace

_SECTIONS: Final = {
    names.TOOLKIT_APP: "toolkit", names.VALIDATOR_APP: "validator", names.DEVICE_PLUGIN_APP: "devicePlugin",
    "gpu-feature-discovery": "gfd", "nvidia-dcgm": "dcgm", "nvidia-dcgm-exporter": "dcgmExporter",
    "nvidia-mig-manager": "migManager", "nvidia-node-status-exporter": "nodeStatusExporter",
    names.MPS_DAEMON_APP: "devicePlugin.mps",
}
"""The sections of a ClusterPolicy's spec that say how pods of an app are made."""
_VALIDATION: Final = "-validation"
"""How the names of init containers end whose image is the validator's, in whatever pod they are."""
_RUNS: Final = "Running"
_AWAITS_TOOLKIT: Final = ("toolkit-validation", _RUNS)
"""The init container of operands that waits for a file of the validator's, in /run/nvidia/validations of the node."""
_PULLED: Final = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})
_NOT_MADE: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "ContainerCreating",
                            "PodInitializing", ""})
"""What a container waits for that has written no log."""


def mend_operand(question: Question) -> Iterator[Candidate]:
    """Get a pod of an operand ready."""
    pod = question.pod()
    if pod is not None:
        fix = mended(pod, question.case.snapshot.pods.get(pod.node, ()))
        yield with_those_behind(fix, pod, question)


def with_those_behind(fix: Fix, pod: PodView, question: Question) -> Fix:
    """Return a fix by which the pods get ready, too, that only wait for the container toolkit on their node."""
    return fix if pod.labels.get("app") != names.TOOLKIT_APP else with_others(fix, question)


def with_others(fix: Fix, question: Question) -> Fix:
    """Return a fix by which the operands' pods on the node get ready that only wait for others."""
    behind = [one for one in question.node.operands if trouble_of(one) is None]
    return replace(fix, change=lambda case: reduce(with_ready, behind, fix.change(case)))


def mended(pod: PodView, beside: Iterable[PodView] = ()) -> Fix:
    """Return the fix that gets a pod ready whatever is wrong with it, beside others of its node."""
    container, reason = _stuck_in(pod)
    at = f"{quote(pod.name)} -n {quote(pod.namespace)}"
    if (container, reason) == _AWAITS_TOOLKIT and (validator := _validated_by(pod, beside)) is not None:
        return Fix(f"have the node validated anew: the status file that pod {pod.name} waits for is gone, and the validator, "
                   "which leaves it, is done", partial(with_ready, pod=pod),
                   f"kubectl delete pod {quote(validator.name)} -n {quote(validator.namespace)}",
                   looks=(f"kubectl logs {at} -c {quote(container)}",))
    if reason in _PULLED:
        do = f"let the node pull the image of container {container}: it must exist, and the pull secrets must give access to it"
    elif reason in _NOT_MADE:
        do = f"see in the events of pod {pod.name} what it waits for: a ConfigMap, a Secret, a volume, the container runtime"
    elif container:
        do = f"correct what container {container} complains about, or waits for"
    else:
        do = f"let pod {pod.name} be started: its events say what it lacks"
    app = names.VALIDATOR_APP if container.endswith(_VALIDATION) and reason in _PULLED else pod.labels.get("app", "")
    if section := _SECTIONS.get(app):
        do += f" (its settings are spec.{section} of the ClusterPolicy)"
    previous = " --previous" if reason == "CrashLoopBackOff" else ""
    silent = not container or reason in _PULLED | _NOT_MADE
    command = f"kubectl describe pod {at}" if silent else f"kubectl logs {at} -c {quote(container)}{previous}"
    return Fix(do, partial(with_ready, pod=pod), command)


def _validated_by(pod: PodView, beside: Iterable[PodView]) -> PodView | None:
    """Return the validator beside a pod, if it has validated all."""
    return next((one for one in beside if one.labels.get("app") == names.VALIDATOR_APP and one.namespace == pod.namespace
                 and one.ready and not one.deleting and one.ref != pod.ref), None)


def _stuck_in(pod: PodView) -> tuple[str, str]:
    """Return the container that a pod waits for, and why that does not run; one that runs has a word for it."""
    if pod.progress is None:
        return "", pod.waiting
    return pod.progress.name, pod.progress.reason or _RUNS
