"""The pod that has the images of a driver pulled onto one node, and does nothing of the driver's."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from gpuward import names
from gpuward.crd.facts import KubeObject
from gpuward.crd.rolloutpolicy import RolloutPolicy
from gpuward.model.containers import Pull
from gpuward.model.taints import Toleration
from gpuward.model.views import PolicyView
from gpuward.upgrade.staged import NextImages

NOBODY: Final = 65_534
ENDS_AFTER: Final = 7200
"""Seconds after which its kubelet ends it, for an operator that is gone for good."""
_SECURITY: Final = {
    "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "privileged": False, "readOnlyRootFilesystem": True,
    "runAsNonRoot": True, "runAsUser": NOBODY,
}
_CORDONED: Final = Toleration(names.CORDON_TAINT, "Exists", effect="NoSchedule")


def staging_pod_name(node: str, images: str) -> str:
    """Return the name of the one pod that may be there for a node and its images, whoever makes it."""
    return f"{names.STAGING_APP}-{hashlib.sha256(f'{node}/{images}'.encode()).hexdigest()[:16]}"


def staging_pod(node: str, images: NextImages, namespace: str, owner: PolicyView) -> KubeObject:
    """Return the pod: it asks for nothing, so that it fits onto a node that is full and takes no pod's place, and the scheduler
    may put it on that node alone.
    """
    digest = images.shape.digest
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": staging_pod_name(node, digest),
            "namespace": namespace,
            "labels": {"app": names.STAGING_APP, names.STAGING_IMAGES: digest},
            "ownerReferences": [{"apiVersion": RolloutPolicy.api_version, "kind": RolloutPolicy.kind, "name": owner.name,
                                 "uid": owner.uid, "controller": True}],
        },
        "spec": {
            "activeDeadlineSeconds": ENDS_AFTER,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}}},
            "automountServiceAccountToken": False,
            "containers": [_container(pull) for pull in images.shape.pulls],
            "enableServiceLinks": False,
            **({"imagePullSecrets": [{"name": name} for name in images.pull_secrets]} if images.pull_secrets else {}),
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": True, "runAsUser": NOBODY, "seccompProfile": {"type": "RuntimeDefault"}},
            **({"serviceAccountName": images.account} if images.account else {}),
            "terminationGracePeriodSeconds": 1,
            "tolerations": [_toleration(one) for one in (*images.shape.tolerations, _CORDONED)],
        },
    }


def _container(pull: Pull) -> dict[str, Any]:
    return {
        "name": pull.container,
        "image": pull.image,
        **({"imagePullPolicy": pull.policy} if pull.policy else {}),
        # Where an image holds no such program its container cannot start, which is as good: the image is there.
        "command": ["true"],
        # Images of drivers and CUDA may name all GPUs in theirs, and NVIDIA's runtime would look for a driver.
        "env": [{"name": names.VISIBLE_DEVICES, "value": "void"}],
        "securityContext": _SECURITY,
    }


def _toleration(one: Toleration) -> dict[str, str]:
    told = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    return {key: value for key, value in told.items() if value}
