"""What a pod asks of a node, read once from its spec."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubesandbox.quantities import parse
from kubesandbox.sim.objects import labels_of, name_of, namespace_of
from kubesandbox.sim.selection import node_terms_match, selector_matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kubesandbox.sim.objects import Object

HOSTNAME: Final = "kubernetes.io/hostname"


@lru_cache(maxsize=4096)
def quantity(text: str | int | float) -> float:
    """Read a Kubernetes quantity as a number; what cannot be read counts as nothing."""
    try:
        return float(parse(text))
    except ValueError:
        return 0.0


def _container_requests(container: Object) -> dict[str, float]:
    resources = container.get("resources") or {}
    # A limit without a request is a request, as the API server defaults it.
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity(value) for name, value in asked.items()}


def requests_of(spec: Object) -> dict[str, float]:
    """Return the effective requests of a pod spec: the containers together, or a larger init container."""
    total: dict[str, float] = {}
    sidecars: dict[str, float] = {}
    for container in spec.get("containers") or ():
        for name, value in _container_requests(container).items():
            total[name] = total.get(name, 0.0) + value
    peak: dict[str, float] = {}
    for container in spec.get("initContainers") or ():
        lasting = container.get("restartPolicy") == "Always"
        for name, value in _container_requests(container).items():
            peak[name] = max(peak.get(name, 0.0), value + sidecars.get(name, 0.0))
            if lasting:
                sidecars[name] = sidecars.get(name, 0.0) + value
    for name, value in sidecars.items():
        total[name] = total.get(name, 0.0) + value
    for name, value in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0.0) + quantity(value)
    return {name: max(total.get(name, 0.0), peak.get(name, 0.0)) for name in {**total, **peak}}


@dataclass(frozen=True, slots=True)
class Demands:
    """Hold what a pod asks of a node. `target` is the one node that a DaemonSet's pod may go to, if it is one."""

    namespace: str
    labels: Mapping[str, str]
    selector: Mapping[str, str]
    terms: tuple[Object, ...] | None
    tolerations: list[Object]
    requests: Mapping[str, float]
    repelled_by: tuple[Object, ...]
    target: str

    def fits_labels(self, node: Object) -> bool:
        """Tell whether the node selector and the required node affinity admit a node."""
        labels = labels_of(node)
        for key, value in self.selector.items():
            if labels.get(key) != value:
                return False
        return self.terms is None or node_terms_match(self.terms, name_of(node), labels)

    def is_kept_off_by(self, pods: Iterable[Object]) -> bool:
        """Tell whether a required anti-affinity by hostname, this pod's or one of the pods', forbids their company."""
        for pod in pods:
            namespace, labels = namespace_of(pod), labels_of(pod)
            if any(_repels(term, self.namespace, namespace, labels) for term in self.repelled_by):
                return True
            if any(_repels(term, namespace, self.namespace, self.labels) for term in _anti_affinity(pod["spec"])):
                return True
        return False

    def signature(self) -> str:
        """Return a text that is equal for pods that fit the same nodes."""
        facts = (self.namespace, self.labels, self.selector, self.terms, self.tolerations, self.requests,
                 self.repelled_by)
        return msgspec.json.encode(facts, order="deterministic").decode()


def demands_of(pod: Object) -> Demands:
    """Read a pod's demands; of a DaemonSet or Job, give a pod made from its template."""
    spec = pod["spec"]
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution")
    terms = tuple(required.get("nodeSelectorTerms") or ()) if required is not None else None
    return Demands(
        namespace=namespace_of(pod), labels=labels_of(pod), selector=spec.get("nodeSelector") or {}, terms=terms,
        tolerations=list(spec.get("tolerations") or ()), requests=requests_of(spec),
        repelled_by=_anti_affinity(spec), target=target_node(pod))


def target_node(pod: Object) -> str:
    """Return the node that a pod is bound to, or the one node that its affinity names, or an empty string."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        bound: str = spec["nodeName"]
        return bound
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name" and field["operator"] == "In" and len(field["values"]) == 1:
                name: str = field["values"][0]
                return name
    return ""


def repels(pod: Object) -> bool:
    """Tell whether a pod has a required anti-affinity by hostname."""
    return bool(_anti_affinity(pod["spec"]))


def _anti_affinity(spec: Any) -> tuple[Object, ...]:
    rules = (spec.get("affinity") or {}).get("podAntiAffinity")
    if not rules:
        return ()
    return tuple(term for term in rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
                 if term.get("topologyKey") == HOSTNAME)


def _repels(term: Object, own_namespace: str, namespace: str, labels: Mapping[str, str]) -> bool:
    namespaces = term.get("namespaces") or [own_namespace]
    return namespace in namespaces and selector_matches(term.get("labelSelector"), labels)
