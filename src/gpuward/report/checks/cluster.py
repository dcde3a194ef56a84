"""The cluster as such: its version and clock, the operator's namespace and rights, and who else looks at our writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any, Final

from gpuward import names
from gpuward.model.kubernetes import OLDEST_NAME, is_too_old, read_version
from gpuward.model.listing import listed
from gpuward.model.rights import grant
from gpuward.model.selectors import read_selector, satisfied
from gpuward.report.checks.facts import Finding, Inspected, Level, Object, Unseen, unseen

MOST_AHEAD: Final = 5.0
"""Seconds by which clocks may differ; no decision goes by this machine's clock, but people compare logs."""
MOST_RIGHTS: Final = 4
ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_SEEN: Final = (("", "nodes", False), ("apps", "daemonsets", True), ("", "pods", True), ("", "pods/eviction", False))
"""What the upgrade writes, and whether only what is in the operator's namespace matters: evictions are everywhere."""


def kubernetes(facts: Inspected) -> Iterator[Finding]:
    """Say whether the API server's version is one that gpuward runs on."""
    if read_version(facts.version) is None:
        yield Finding("kubernetes", Level.WARN, f"the version {facts.version!r} cannot be read")
    elif is_too_old(facts.version):
        yield Finding("kubernetes", Level.FAIL, f"{facts.version} is older than {OLDEST_NAME}, the oldest that gpuward supports",
                      "upgrade the cluster")
    else:
        yield Finding("kubernetes", Level.OK, facts.version)


def clock(facts: Inspected) -> Iterator[Finding]:
    """Say whether this machine and the API server agree about the time."""
    if facts.ahead is None:
        yield Finding("clock", Level.WARN, "the API server does not tell its time")
    elif abs(facts.ahead) > MOST_AHEAD:
        if "+kubesandbox" in facts.version:
            side = "behind" if facts.ahead > 0 else "ahead of"
            told = f"the sandbox's is {abs(facts.ahead):.0f} s {side} this machine's, as its --speed has it"
            yield Finding("clock", Level.OK, told)
            return
        side = "ahead of" if facts.ahead > 0 else "behind"
        yield Finding("clock", Level.WARN, f"this machine's clock is {abs(facts.ahead):.0f} s {side} the API server's",
                      "synchronise both by NTP")
    else:
        yield Finding("clock", Level.OK, "this machine's agrees with the API server's")


def namespace(facts: Inspected) -> Iterator[Finding]:
    """Say whether driver pods, which are privileged, may run in the operator's namespace."""
    name = facts.namespace
    fix = f"kubectl label namespace {name} {ENFORCE}=privileged --overwrite"
    if isinstance(facts.place, Unseen):
        yield unseen("namespace", facts.place)
    elif facts.place is None:
        # The manifests make one namespace, and no other.
        make = "kubectl apply -f deploy/operator.yaml" if name == names.DEFAULT_NAMESPACE else (
            f"name the operator's namespace with -n, or make this one: kubectl create namespace {quote(name)}")
        yield Finding("namespace", Level.WARN, f"there is no namespace {name}", make)
    else:
        enforced = (facts.place["metadata"].get("labels") or {}).get(ENFORCE)
        if enforced == "privileged":
            yield Finding("namespace", Level.OK, f"{name} lets privileged pods run")
        elif enforced is None:
            yield Finding("namespace", Level.WARN, f"{name} has no label {ENFORCE}: the API server's default counts", fix)
        else:
            yield Finding("namespace", Level.FAIL, f"{name} enforces Pod Security {enforced}: no driver pod can run", fix)


def rights(facts: Inspected) -> Iterator[Finding]:
    """Say which rights of deploy/operator.yaml are missing."""
    asked = facts.rights
    if isinstance(asked, Unseen):
        yield unseen("rights", asked)
    elif not asked.missing:
        yield Finding("rights", Level.OK, f"{asked.subject} has all {asked.asked}")
    else:
        level = Level.FAIL if asked.is_account and not asked.can_do_without else Level.WARN
        fix = grant(facts.namespace) if asked.can_do_without else "kubectl apply -f deploy/operator.yaml"
        fix = fix if asked.is_account else "you need them to run gpuward as yourself"
        told = f"{asked.subject} lacks {len(asked.missing)} of {asked.asked}: {listed(asked.missing, MOST_RIGHTS)}"
        yield Finding("rights", level, told, fix)


def webhooks(facts: Inspected) -> Iterator[Finding]:
    """Name webhooks that see what the upgrade writes."""
    if isinstance(facts.webhooks, Unseen):
        yield unseen("webhooks", facts.webhooks)
        return
    labels = (facts.place["metadata"].get("labels") or {}) if isinstance(facts.place, Mapping) else {}
    labels = {"kubernetes.io/metadata.name": facts.namespace, **labels}
    count = 0
    for configuration in facts.webhooks:
        for hook in configuration.get("webhooks") or ():
            if seen := [what for what in _SEEN if _sees(hook, *what, labels)]:
                count += 1
                resources = ", ".join(resource for _, resource, _ in seen)
                policy = hook.get("failurePolicy", "Fail")
                yield Finding(
                    "webhooks", Level.WARN, f"webhook {hook['name']} of {configuration['metadata']['name']} sees changes of "
                    f"{resources} (failurePolicy {policy})",
                    "make sure that it lets gpuward's changes pass" + (", and that it is up: nothing passes without it"
                                                                       if policy == "Fail" else ""))
    if not count:
        yield Finding("webhooks", Level.OK, "none sees what gpuward writes")


def _sees(hook: Object, group: str, resource: str, own: bool, labels: Mapping[str, str]) -> bool:
    chosen = hook.get("namespaceSelector") or {}
    expressions = [(one["key"], one["operator"], one.get("values") or ()) for one in chosen.get("matchExpressions") or ()]
    if own and not satisfied(read_selector(chosen.get("matchLabels") or {}, expressions), labels):
        return False
    return any(_covers(rule, group, resource) for rule in hook.get("rules") or ())


def _covers(rule: Mapping[str, Any], group: str, resource: str) -> bool:
    base, _, sub = resource.partition("/")
    wanted = {resource, f"*/{sub}", f"{base}/*", "*/*"} if sub else {resource, "*", "*/*"}
    writes = set(rule.get("operations") or ()) & {"*", "CREATE", "UPDATE", "DELETE"}
    return bool(writes and {group, "*"} & set(rule.get("apiGroups") or ()) and wanted & set(rule.get("resources") or ()))
