"""What is installed: CRDs, operators, runtime classes, and policies with what they refer to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuward import names
from gpuward.labels.discovery import NOT_DISCOVERED
from gpuward.model.left_loaded import loaded_by
from gpuward.model.listing import MOST_NAMED, listed
from gpuward.report.checks.facts import Finding, Inspected, Level, Object, Unseen, unseen
from gpuward.report.checks.images import unpulled_images

APPLY_CRDS: Final = "gpuward crds | kubectl apply --server-side -f -"
REPLACE_CRDS: Final = "gpuward crds | kubectl apply --server-side --force-conflicts -f -"
"""For CRDs that somebody else has applied."""
NEEDED: Final = "clusterpolicies.nvidia.com"
MEANING: Final = {"nvidiadrivers.nvidia.com": "drivers are the ClusterPolicy's",
                  "rolloutpolicies.gpuward.io": "gpuward's own settings have their defaults"}
RUNTIME_CLASSES: Final = ("nvidia", "nvidia-cdi", "nvidia-legacy")


def crds(facts: Inspected) -> Iterator[Finding]:
    """Compare the CRDs with those of this gpuward."""
    for wanted in facts.wanted_crds:
        name = wanted["metadata"]["name"]
        found = facts.crds.get(name)
        if isinstance(found, Unseen):
            yield unseen("crds", found)
        elif found is not None:
            yield _crd(name, wanted, found)
        elif name == NEEDED:
            yield Finding("crds", Level.FAIL, f"{name} is not installed", APPLY_CRDS)
        else:
            yield Finding("crds", Level.WARN, f"{name} is not installed: {MEANING.get(name, 'it is not used')}", APPLY_CRDS)


def _crd(name: str, wanted: Object, found: Object) -> Finding:
    status = found.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    established = conditions.get("Established", {})
    if established.get("status") != "True":
        why = next((one.get("message") for one in conditions.values() if one.get("status") == "False" and one.get("message")), "")
        return Finding("crds", Level.FAIL, f"{name} is not served{f': {why}' if why else ''}", f"kubectl describe crd {name}")
    ours = {version["name"]: version for version in wanted["spec"]["versions"]}
    theirs = {version["name"]: version for version in found["spec"]["versions"]}
    if old := [version for version in status.get("storedVersions") or () if version not in ours]:
        return Finding("crds", Level.WARN, f"{name} has objects stored as {old[0]}, a version that this gpuward does not know",
                       "store them anew, and take the version out of status.storedVersions")
    for version in ours:
        if version not in theirs or not theirs[version].get("served"):
            return Finding("crds", Level.FAIL, f"{name} does not serve version {version}", REPLACE_CRDS)
        if field := difference(_schema(ours[version]), _schema(theirs[version])):
            return Finding("crds", Level.WARN, f"{name} is of another version: {field} differs", REPLACE_CRDS)
    return Finding("crds", Level.OK, f"{name} {', '.join(ours)}")


def _schema(version: Mapping[str, Any]) -> Any:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def difference(ours: Any, theirs: Any, path: str = "") -> str:
    """Return the path of the first field of a schema that differs, descriptions aside; empty if none does."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in sorted({*ours, *theirs}):
            if key == "description" and isinstance(ours.get(key, theirs.get(key)), str):
                continue
            further = path if key in ("properties", "items") else f"{path}.{key}" if path else str(key)
            if key not in ours or key not in theirs:
                return further
            if found := difference(ours[key], theirs[key], further):
                return found
        return ""
    return "" if ours == theirs else path


def operators(facts: Inspected) -> Iterator[Finding]:
    """Say who runs, by Leases and by Deployments."""
    running = () if isinstance(facts.operators, Unseen) else [one for one in facts.operators if one.runs]
    if isinstance(facts.operators, Unseen):
        yield unseen("operators", facts.operators)
    elif len(running) > 1:
        yield Finding("operators", Level.FAIL, "; ".join(one.message for one in running), "keep one of them")
    elif running and running[0].namespace != facts.namespace:
        yield Finding("operators", Level.WARN, f"{running[0].message}, in namespace {running[0].namespace} and not in "
                      f"{facts.namespace}", f"add -n {running[0].namespace}, or stop it before another one is installed")
    elif running:
        yield Finding("operators", Level.OK, running[0].message)
    else:
        wanted = isinstance(facts.policy, Unseen) or facts.policy.name
        told = next((one.message for one in facts.operators if one.namespace == facts.namespace), "no operator runs")
        yield Finding("operators", Level.WARN if wanted else Level.OK, told, _start(facts) if wanted else "")
    yield from _deployments(facts)


def _start(facts: Inspected) -> str:
    deployments = () if isinstance(facts.deployments, Unseen) else facts.deployments
    here = [one["metadata"]["name"] for one in deployments if one["metadata"]["namespace"] == facts.namespace]
    if not here:
        return "kubectl apply -f deploy/operator.yaml"
    return f"see why it does not: kubectl get pods -n {facts.namespace} -l app={names.OPERATOR_NAME}; " \
           f"kubectl logs -n {facts.namespace} deployment/{here[0]}"


def _deployments(facts: Inspected) -> Iterator[Finding]:
    if isinstance(facts.deployments, Unseen):
        yield unseen("operators", facts.deployments)
        return
    active = [one for one in facts.deployments if (one.get("spec") or {}).get("replicas", 1)]
    places = [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in active]
    if len(active) > 1:
        yield Finding("operators", Level.FAIL, f"Deployments of GPU operators: {', '.join(places)}", "keep one of them")
    for one, place in zip(active, places, strict=True):
        images = [each.get("image", "") for each in one["spec"]["template"]["spec"].get("containers") or ()]
        if any("nvidia/gpu-operator" in image or "cloud-native/gpu-operator" in image for image in images):
            namespace, _, name = place.partition("/")
            yield Finding("operators", Level.WARN, f"Deployment {place} is NVIDIA's operator ({images[0]}): gpuward waits while "
                          "it runs", f"kubectl scale deployment {name} -n {namespace} --replicas=0")
    yield from unpulled_images(facts, active)


def runtime_classes(facts: Inspected) -> Iterator[Finding]:
    """Say whether classes of our names are somebody else's."""
    if isinstance(facts.runtime_classes, Unseen):
        yield unseen("runtime-classes", facts.runtime_classes)
        return
    found = {one["metadata"]["name"]: one.get("handler") for one in facts.runtime_classes}
    for name in RUNTIME_CLASSES:
        if name in found and found[name] != name:
            yield Finding("runtime-classes", Level.WARN, f"RuntimeClass {name} has handler {found[name]}, not {name}",
                          f"gpuward replaces it: give yours another name, or delete it (kubectl delete runtimeclass {name})")
    if all(found.get(name, name) == name for name in RUNTIME_CLASSES):
        there = [name for name in RUNTIME_CLASSES if name in found]
        yield Finding("runtime-classes", Level.OK, ", ".join(there) if there else "none yet: the operator makes them")


def policy(facts: Inspected) -> Iterator[Finding]:
    """Say whether the ClusterPolicy, and NVIDIADrivers in force, can be followed, and what else there is that cannot."""
    for told in facts.unsupported:
        yield Finding("policy", Level.WARN, told, "describe drivers and operands in a ClusterPolicy")
    if isinstance(facts.policy, Unseen):
        yield unseen("policy", facts.policy)
        return
    if not facts.policy.name:
        yield _without_policy(facts, facts.policy.absent)
    for problem in facts.policy.problems:
        yield _judged(problem, facts.policy.name)
    if facts.policy.driverless:
        yield Finding(
            "policy", Level.WARN,
            f"ClusterPolicy {facts.policy.name} leaves drivers to NVIDIADrivers, and there is none: no node gets a driver",
            "create one like examples/nvidiadriver.yaml with the version that you want: that version replaces whatever driver "
            f"nodes run{_loaded(facts)}")
    elif facts.policy.name and not facts.policy.problems:
        yield Finding("policy", Level.OK, f"ClusterPolicy {facts.policy.name} can be followed")
    for name in facts.policy.unfollowed:
        why = f"driver.useNvidiaDriverCRD of ClusterPolicy {facts.policy.name} is false"
        yield Finding("policy", Level.WARN, f"NVIDIADriver {name} is not followed: {why}",
                      f"delete it (kubectl delete nvidiadriver {name}), or leave all drivers to NVIDIADrivers by that field")
    for name in facts.policy.ignored:
        yield Finding("policy", Level.WARN, f"ClusterPolicy {name} is ignored: {facts.policy.name} is older",
                      f"kubectl delete clusterpolicy {name}")


def _without_policy(facts: Inspected, absent: str) -> Finding:
    """Say that no ClusterPolicy is in force; the one of the examples would replace a driver that nodes have of an earlier one."""
    loaded = {} if isinstance(facts.nodes, Unseen) else loaded_by(facts.nodes)
    told = f"{absent}: nothing is managed"
    if not loaded:
        return Finding("policy", Level.WARN, told, "kubectl apply -f examples/clusterpolicy.yaml")
    asked = " or ".join(dict.fromkeys(each.asked for each in loaded))
    return Finding("policy", Level.WARN, f"{told}{_loaded(facts)}",
                   f"bring back the ClusterPolicy that was there, or write one with {asked}: another version, as in "
                   "examples/clusterpolicy.yaml, replaces the driver of the nodes")


def _loaded(facts: Inspected) -> str:
    """Say which drivers nodes have."""
    loaded = {} if isinstance(facts.nodes, Unseen) else loaded_by(facts.nodes)
    return "".join(f"; {each.version} on {listed(nodes, MOST_NAMED)}" for each, nodes in loaded.items())


def _judged(problem: str, policy: str) -> Finding:
    """Say what is wrong with a policy, and what to do about it."""
    what, lacks_labels, rest = problem.partition(NOT_DISCOVERED)
    if lacks_labels:  # no edit of the policy would help
        found, _, fix = rest.partition(": ")
        return Finding("policy", Level.FAIL, what + lacks_labels + found, fix)
    fix = f"kubectl edit clusterpolicy {policy}" if problem.startswith("ClusterPolicy") else ""
    if problem.startswith("NVIDIADriver "):
        fix = f"kubectl edit nvidiadriver {problem.split()[1]}"
    elif problem.startswith("RolloutPolicy "):
        fix = f"kubectl edit rolloutpolicy {problem.split()[1]}"
    return Finding("policy", Level.FAIL, problem, fix)


def references(facts: Inspected) -> Iterator[Finding]:
    """Say which ConfigMaps and Secrets that a policy names are missing."""
    if isinstance(facts.named, Unseen):
        yield unseen("references", facts.named)
        return
    for what in facts.named.missing:
        yield Finding("references", Level.FAIL, f"{what} is missing in namespace {facts.namespace}, and a policy names it",
                      "make it, or name another one")
    for what in facts.named.absent:
        yield Finding("references", Level.WARN, f"{what} is not there, and pods that a policy asks for name it: "
                      "they may not be made, or get no image", "make it, or name another one")
    for what in facts.named.unseen:
        yield unseen("references", Unseen(what))
    if facts.named.named and not (facts.named.missing or facts.named.unseen or facts.named.absent):
        yield Finding("references", Level.OK, f"{', '.join(facts.named.named)} {'are' if facts.named.named[1:] else 'is'} there")
