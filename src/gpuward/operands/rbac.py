"""What an operand may do in the cluster: a ServiceAccount, its roles and their bindings.

The rules are NVIDIA's contract: whoever moves from NVIDIA's operator finds the same rights under the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuward.operands.objects import Json, metadata
from gpuward.operands.state import ObjectRef

GROUP = "rbac.authorization.k8s.io"
VERSION = f"{GROUP}/v1"

READ = ("get", "list", "watch")

Labels = Mapping[str, str] | None


def rule(group: str, resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()) -> Json:
    """Return a rule that allows `verbs` on resources of one API group; empty `names` means every object."""
    return {
        "apiGroups": [group],
        "resources": list(resources),
        **({"resourceNames": list(names)} if names else {}),
        "verbs": list(verbs),
    }


def use_privileged_scc() -> Json:
    """Return the rule that every operand's Role has: OpenShift then lets its privileged pods start."""
    return rule("security.openshift.io", ["securitycontextconstraints"], ["use"], ["privileged"])


def read_nodes() -> Json:
    """Return the rule to read nodes."""
    return rule("", ["nodes"], READ)


def service_account(namespace: str, name: str, labels: Labels = None) -> Json:
    """Return a ServiceAccount."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, namespace, labels)}


def role(namespace: str, name: str, rules: Sequence[Json], labels: Labels = None) -> Json:
    """Return a Role."""
    return {"apiVersion": VERSION, "kind": "Role", "metadata": metadata(name, namespace, labels), "rules": list(rules)}


def cluster_role(name: str, rules: Sequence[Json], labels: Labels = None) -> Json:
    """Return a ClusterRole."""
    return {"apiVersion": VERSION, "kind": "ClusterRole", "metadata": metadata(name, "", labels), "rules": list(rules)}


def role_binding(namespace: str, name: str, labels: Labels = None) -> Json:
    """Return the RoleBinding of a Role to the ServiceAccount of the same name."""
    return _binding("Role", name, metadata(name, namespace, labels), {"name": name, "namespace": namespace})


def cluster_role_binding(namespace: str, name: str, account: str = "", labels: Labels = None) -> Json:
    """Return the ClusterRoleBinding of a ClusterRole to a ServiceAccount, by default the one of the same name."""
    return _binding("ClusterRole", name, metadata(name, "", labels), {"name": account or name, "namespace": namespace})


def _binding(kind: str, name: str, meta: Json, account: Json) -> Json:
    return {
        "apiVersion": VERSION, "kind": f"{kind}Binding", "metadata": meta,
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", **account}],
    }


def access(namespace: str, name: str, rules: Sequence[Json], cluster_rules: Sequence[Json] = (),
           labels: Labels = None) -> list[Json]:
    """Return all that gives an operand its rights; without `cluster_rules` there is no ClusterRole."""
    objects = [
        service_account(namespace, name, labels),
        role(namespace, name, rules, labels),
        role_binding(namespace, name, labels),
    ]
    if cluster_rules:
        objects += [cluster_role(name, cluster_rules), cluster_role_binding(namespace, name)]
    return objects


def access_refs(namespace: str, name: str, *, cluster: bool = True) -> tuple[ObjectRef, ...]:
    """Return the references of what `access` makes."""
    refs = (
        ObjectRef("v1", "ServiceAccount", namespace, name),
        ObjectRef(VERSION, "Role", namespace, name),
        ObjectRef(VERSION, "RoleBinding", namespace, name),
    )
    if not cluster:
        return refs
    return (*refs, ObjectRef(VERSION, "ClusterRole", "", name), ObjectRef(VERSION, "ClusterRoleBinding", "", name))
