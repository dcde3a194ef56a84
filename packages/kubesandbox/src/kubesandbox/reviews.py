"""Access reviews: the sandbox knows one user, who may do everything. They answer and are not stored."""

from __future__ import annotations

from typing import Any, Final

from kubesandbox.resources import Resource

Object = dict[str, Any]

USER: Final[Object] = {"username": "sandbox-admin", "groups": ["system:masters", "system:authenticated"]}
_ALLOWED: Final[Object] = {"allowed": True, "reason": "the sandbox allows everything"}
_RULES: Final[Object] = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}], "incomplete": False,
}


def _review(group: str, plural: str, kind: str, namespaced: bool = False) -> Resource:
    return Resource(group, "v1", plural, kind, namespaced, kind.lower())


_STATUSES: Final[dict[Resource, Object]] = {
    _review("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"): _ALLOWED,
    _review("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"): _ALLOWED,
    _review("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", True): _ALLOWED,
    _review("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"): _RULES,
    _review("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"): {"userInfo": USER},
}
RESOURCES: Final = tuple(_STATUSES)
_BY_PATH: Final = {(one.group, one.plural): one for one in RESOURCES}


def find(path: str) -> Resource | None:
    """Return the review that a path addresses, or None."""
    steps = path.strip("/").split("/")
    if len(steps) < 4 or steps[0] != "apis" or steps[2] != "v1":
        return None
    return _BY_PATH.get((steps[1], steps[-1]))


def answer(resource: Resource, body: Object) -> Object:
    """Return a review with its verdict."""
    return {**body, "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {"creationTimestamp": None, **(body.get("metadata") or {})}, "status": _STATUSES[resource]}
