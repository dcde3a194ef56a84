"""Images of operators, and of what helm starts beside them, that nodes cannot pull."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gpuward import names
from gpuward.report.checks.facts import Finding, Inspected, Level, Object, Unseen, unseen

NOT_PULLED: Final = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})
"""Why a container waits whose image its kubelet cannot have."""


def unpulled_images(facts: Inspected, active: Sequence[Object]) -> Iterator[Finding]:
    """Name the images of operators and of the chart's hooks that a node cannot pull: one line for each of them and image."""
    if isinstance(facts.operator_pods, Unseen):
        yield unseen("operators", facts.operator_pods)
        return
    if not isinstance(facts.hook_pods, Unseen):
        yield from _hook_images(facts.hook_pods)
    runs = not isinstance(facts.operators, Unseen) and any(one.runs for one in facts.operators)
    for deployment in active:
        of, told = deployment["metadata"], set()
        whose = f"Deployment {of['namespace']}/{of['name']}"
        asked = ((deployment.get("spec") or {}).get("selector") or {}).get("matchLabels") or {"app": names.OPERATOR_NAME}
        for pod in facts.operator_pods:
            meta = pod["metadata"]
            if meta["namespace"] != of["namespace"] or not asked.items() <= (meta.get("labels") or {}).items():
                continue
            for image, why in _unpulled(pod):
                if image not in told:
                    told.add(image)
                    yield Finding(
                        "operators", Level.WARN if runs else Level.FAIL,
                        f"pod {meta['name']} of {whose} waits for its image {image}: {why}",
                        "let the node pull it: the image must exist under that name, and the Deployment's imagePullSecrets give "
                        f"access to it (kubectl describe pod -n {meta['namespace']} {meta['name']})")


def _hook_images(pods: Iterable[Object]) -> Iterator[Finding]:
    told = set()
    for pod in pods:
        meta = pod["metadata"]
        job = meta["labels"][names.JOB_NAME]
        for image, why in _unpulled(pod):
            if (job, image) not in told:
                told.add((job, image))
                yield Finding(
                    "operators", Level.FAIL, f"pod {meta['name']} of helm's hook {job} waits for its image {image}: {why}",
                    "let the node pull it, or set operator.repository, image, version and imagePullSecrets of the chart again "
                    f"(kubectl describe pod -n {meta['namespace']} {meta['name']}). Whose helm waits no more may delete it: "
                    f"kubectl delete job -n {meta['namespace']} {job}")


def _unpulled(pod: Object) -> Iterator[tuple[str, str]]:
    """Yield the images of a pod that its kubelet cannot pull, and what that says."""
    images = {one["name"]: one.get("image", "") for key in ("initContainers", "containers")
              for one in (pod.get("spec") or {}).get(key) or ()}
    status = pod.get("status") or {}
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (one.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in NOT_PULLED:
            message = f" ({waiting['message']})" if waiting.get("message") else ""
            yield images.get(one["name"]) or one.get("image", ""), f"{waiting['reason']}{message}"
