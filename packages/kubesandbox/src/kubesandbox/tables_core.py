"""The tables of nodes, events, services and the other small types. Facts from kubectl's server-side printers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kubesandbox import durations
from kubesandbox.table_columns import Column, Row, columns, selector

if TYPE_CHECKING:
    from collections.abc import Callable

Object = dict[str, Any]

_ROLE: Final = "node-role.kubernetes.io/"


def _age(obj: Object, now: float) -> str:
    return durations.since(obj["metadata"].get("creationTimestamp"), now)


def _name(obj: Object) -> str:
    name: str = obj["metadata"]["name"]
    return name


def _node(node: Object, now: float) -> Row:
    status = node.get("status", {})
    info = status.get("nodeInfo") or {}
    addresses = {one["type"]: one["address"] for one in reversed(status.get("addresses") or [])}
    return (_name(node), _readiness(node), _roles(node), _age(node, now), info.get("kubeletVersion") or "",
            addresses.get("InternalIP", "<none>"), addresses.get("ExternalIP", "<none>"), info.get("osImage") or "<unknown>",
            info.get("kernelVersion") or "<unknown>", info.get("containerRuntimeVersion") or "<unknown>")


def _readiness(node: Object) -> str:
    ready = next((one for one in node.get("status", {}).get("conditions") or () if one["type"] == "Ready"), None)
    word = "Unknown" if ready is None else "Ready" if ready["status"] == "True" else "NotReady"
    return word + (",SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else "")


def _roles(node: Object) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE) and key != _ROLE}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(roles)) or "<none>"


def _event(event: Object, now: float) -> Row:
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or first
    count = event.get("count") or 1
    series = event.get("series")
    if series:
        last, count = series.get("lastObservedTime"), series.get("count", count)
    about = event.get("involvedObject") or {}
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    return (durations.since(last, now), event.get("type", ""), event.get("reason", ""),
            f"{about.get('kind', '').lower()}/{about.get('name', '')}", about.get("fieldPath", ""),
            ", ".join(filter(None, (component, source.get("host")))), (event.get("message") or "").strip(),
            durations.since(first, now), count, _name(event))


def _service(service: Object, now: float) -> Row:
    spec = service.get("spec", {})
    ports = []
    for port in spec.get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        ports.append(f"{port['port']}{node_port}/{port.get('protocol', 'TCP')}")
    outside = "<pending>" if spec.get("type") == "LoadBalancer" else ",".join(spec.get("externalIPs") or ()) or "<none>"
    return (_name(service), spec.get("type", ""), spec.get("clusterIP") or "<none>", outside, ",".join(ports) or "<none>",
            _age(service, now), selector(spec.get("selector")))


def _budget(budget: Object, now: float) -> Row:
    spec = budget.get("spec", {})
    return (_name(budget), str(spec.get("minAvailable", "N/A")), str(spec.get("maxUnavailable", "N/A")),
            budget.get("status", {}).get("disruptionsAllowed", 0), _age(budget, now))


def _binding(binding: Object, now: float) -> Row:
    role = binding["roleRef"]
    subjects = binding.get("subjects") or ()
    users = [one["name"] for one in subjects if one["kind"] == "User"]
    groups = [one["name"] for one in subjects if one["kind"] == "Group"]
    accounts = [f"{one.get('namespace', '')}/{one['name']}" for one in subjects if one["kind"] == "ServiceAccount"]
    return (_name(binding), f"{role['kind']}/{role['name']}", _age(binding, now), ", ".join(users), ", ".join(groups),
            ", ".join(accounts))


def _claim(claim: Object, now: float) -> Row:
    status = claim.get("status") or {}
    words = ["allocated" if status.get("allocation") else "pending"]
    if status.get("reservedFor"):
        words.append("reserved")
    if claim["metadata"].get("deletionTimestamp"):
        words.append("deleted")
    return _name(claim), ",".join(words), _age(claim, now)


def _revision(revision: Object, now: float) -> Row:
    owner = next((one for one in revision["metadata"].get("ownerReferences") or () if one.get("controller")), None)
    if owner is None:
        return _name(revision), "<none>", revision.get("revision", 0), _age(revision, now)
    group = owner["apiVersion"].rpartition("/")[0]
    kind = owner["kind"].lower() + (f".{group}" if group else "")
    return _name(revision), f"{kind}/{owner['name']}", revision.get("revision", 0), _age(revision, now)


def _priority(one: Object, now: float) -> Row:
    return _name(one), one["value"], one.get("globalDefault", False), _age(one, now), one.get("preemptionPolicy", "")


_EVENT_COLUMNS: Final = (
    *columns("Last Seen", "Type", "Reason", "Object"), Column("Subobject", priority=1), Column("Source", priority=1),
    Column("Message"), Column("First Seen", priority=1), Column("Count", priority=1), Column("Name", priority=1),
)
_BINDING: Final = columns("Name", "Role", "Age", wide=("Users", "Groups", "ServiceAccounts"))

LAYOUTS: Final[dict[str, tuple[tuple[Column, ...], Callable[[Object, float], Row]]]] = {
    "nodes": (columns("Name", "Status", "Roles", "Age", "Version", wide=(
        "Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime")), _node),
    "events": (_EVENT_COLUMNS, _event),
    "namespaces": (columns("Name", "Status", "Age"), lambda obj, now: (
        _name(obj), obj.get("status", {}).get("phase", ""), _age(obj, now))),
    "configmaps": (columns("Name", "#Data", "Age"), lambda obj, now: (
        _name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), _age(obj, now))),
    "secrets": (columns("Name", "Type", "#Data", "Age"), lambda obj, now: (
        _name(obj), obj.get("type", ""), len(obj.get("data") or ()), _age(obj, now))),
    "serviceaccounts": (columns("Name", "#Secrets", "Age"), lambda obj, now: (
        _name(obj), len(obj.get("secrets") or ()), _age(obj, now))),
    "services": (columns("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", wide=("Selector",)), _service),
    "poddisruptionbudgets.policy": (columns("Name", "Min Available", "Max Unavailable", "#Allowed Disruptions", "Age"), _budget),
    "leases.coordination.k8s.io": (columns("Name", "Holder", "Age"), lambda obj, now: (
        _name(obj), obj.get("spec", {}).get("holderIdentity", ""), _age(obj, now))),
    "runtimeclasses.node.k8s.io": (columns("Name", "Handler", "Age"), lambda obj, now: (
        _name(obj), obj.get("handler", ""), _age(obj, now))),
    "priorityclasses.scheduling.k8s.io": (columns("Name", "#Value", "Global-Default", "Age", "PreemptionPolicy"), _priority),
    "rolebindings.rbac.authorization.k8s.io": (_BINDING, _binding),
    "clusterrolebindings.rbac.authorization.k8s.io": (_BINDING, _binding),
    "resourceclaims.resource.k8s.io": (columns("Name", "State", "Age"), _claim),
    "controllerrevisions.apps": (columns("Name", "Controller", "#Revision", "Age"), _revision),
}
