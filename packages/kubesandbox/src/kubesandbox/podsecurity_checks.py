"""The checks of the Pod Security Standards that pods of an operator can meet, worded as kube-apiserver words them.

Facts from k8s.io/pod-security-admission (v1.36). Not here, since few operators come near them: AppArmor, SELinux, procMount,
sysctls and Windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Object = dict[str, Any]

LEVELS: Final = ("privileged", "baseline", "restricted")
_CAPABILITIES: Final = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID",
    "SETPCAP", "SETUID", "SYS_CHROOT"})
_PROFILES: Final = ("RuntimeDefault", "Localhost")
_VOLUMES: Final = frozenset({
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"})


class Violation(NamedTuple):
    """Say which rule a pod breaks, and where."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})"


class _Check(NamedTuple):
    level: str
    since: int
    """The minor version of the standard that has the check first."""
    find: Callable[[Object], Violation | None]
    overridden_since: int = 1000
    """From this minor version on the level `restricted` has a stricter check in its place."""


def violations(level: str, minor: int | None, spec: Object) -> list[Violation]:
    """Return what a pod's spec breaks of a level; `minor` is the version 1.x of the standard, None the latest."""
    version = 999 if minor is None else minor
    checks = [check for check in _CHECKS if check.since <= version and LEVELS.index(check.level) <= LEVELS.index(level) and not (
        level == "restricted" and version >= check.overridden_since)]
    return [found for check in checks if (found := check.find(spec)) is not None]


def _containers(spec: Object) -> Iterator[Object]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(field) or ()


def _context(owner: Object) -> Object:
    return owner.get("securityContext") or {}


def _quoted(items: Iterable[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def _named(names: list[str], noun: str = "container") -> str:
    return f"{noun if len(names) == 1 else noun + 's'} {_quoted(names)}"


def _verb(names: list[str]) -> str:
    return "uses" if len(names) == 1 else "use"


def _added(container: Object) -> list[str]:
    return (_context(container).get("capabilities") or {}).get("add") or []


def _must_not_include(names: list[str], extra: dict[str, set[str]]) -> str:
    return f"{_named(names)} must not include {_quoted(sorted(set().union(*extra.values())))} in securityContext.capabilities.add"


def _capabilities_baseline(spec: Object) -> Violation | None:
    bad = {one["name"]: set(_added(one)) - _CAPABILITIES for one in _containers(spec)}
    where = [name for name, extra in bad.items() if extra]
    if not where:
        return None
    return Violation("non-default capabilities", _must_not_include(where, bad))


def _host_namespaces(spec: Object) -> Violation | None:
    shared = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def _host_paths(spec: Object) -> Violation | None:
    where = [volume["name"] for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Violation("hostPath volumes", _named(where, "volume")) if where else None


def _host_ports(spec: Object) -> Violation | None:
    taken = {one["name"]: [str(port["hostPort"]) for port in one.get("ports") or () if port.get("hostPort")]
             for one in _containers(spec)}
    where = [name for name, ports in taken.items() if ports]
    if not where:
        return None
    ports = sorted({port for found in taken.values() for port in found})
    noun = "hostPort" if len(ports) == 1 else "hostPorts"
    return Violation("hostPort", f"{_named(where)} {_verb(where)} {noun} {', '.join(ports)}")


def _host_probes(spec: Object) -> Violation | None:
    where: set[str] = set()
    hosts: set[str] = set()
    for one in _containers(spec):
        handlers = [one.get(name) for name in ("livenessProbe", "readinessProbe", "startupProbe")]
        handlers += [(one.get("lifecycle") or {}).get(name) for name in ("postStart", "preStop")]
        found = {action["host"] for handler in handlers if handler
                 for action in (handler.get("httpGet"), handler.get("tcpSocket")) if action and action.get("host")}
        hosts |= found
        where |= {one["name"]} if found else set()
    if not where:
        return None
    noun = "probe or lifecycle host" + ("" if len(hosts) == 1 else "s")
    return Violation("probe or lifecycle host", f"{_named(sorted(where))} {_verb(sorted(where))} {noun} {_quoted(sorted(hosts))}")


def _privileged(spec: Object) -> Violation | None:
    where = [one["name"] for one in _containers(spec) if _context(one).get("privileged")]
    return Violation("privileged", f"{_named(where)} must not set securityContext.privileged=true") if where else None


def _profile(owner: Object) -> str | None:
    profile = _context(owner).get("seccompProfile")
    return None if profile is None else profile.get("type", "")


def _seccomp_baseline(spec: Object) -> Violation | None:
    bad = [one["name"] for one in _containers(spec) if _profile(one) not in (None, *_PROFILES)]
    pod_is_bad = _profile(spec) not in (None, *_PROFILES)
    setters = [*(["pod"] if pod_is_bad else []), *([_named(bad)] if bad else [])]
    if not setters:
        return None
    values = sorted({value for owner in (spec, *_containers(spec)) if (value := _profile(owner)) not in (None, *_PROFILES)
                     and value is not None})
    return Violation("seccompProfile",
                     f"{' and '.join(setters)} must not set securityContext.seccompProfile.type to {_quoted(values)}")


def _escalation(spec: Object) -> Violation | None:
    where = [one["name"] for one in _containers(spec) if _context(one).get("allowPrivilegeEscalation") is not False]
    return Violation("allowPrivilegeEscalation != false",
                     f"{_named(where)} must set securityContext.allowPrivilegeEscalation=false") if where else None


def _capabilities_restricted(spec: Object) -> Violation | None:
    keeping = [one["name"] for one in _containers(spec)
               if "ALL" not in ((_context(one).get("capabilities") or {}).get("drop") or ())]
    extra = {one["name"]: set(_added(one)) - {"NET_BIND_SERVICE"} for one in _containers(spec)}
    adding = [name for name, found in extra.items() if found]
    told = [f'{_named(keeping)} must set securityContext.capabilities.drop=["ALL"]'] if keeping else []
    if adding:
        told.append(_must_not_include(adding, extra))
    return Violation("unrestricted capabilities", "; ".join(told)) if told else None


def _volumes(spec: Object) -> Violation | None:
    bad = [volume for volume in spec.get("volumes") or () if not _VOLUMES.intersection(volume)]
    if not bad:
        return None
    where = [volume["name"] for volume in bad]
    kinds = sorted({kind for volume in bad for kind in volume if kind != "name"} or {"unknown"})
    noun = "restricted volume type" if len(kinds) == 1 else "restricted volume types"
    return Violation("restricted volume types", f"{_named(where, 'volume')} {_verb(where)} {noun} {_quoted(kinds)}")


def _non_root(spec: Object) -> Violation | None:
    if spec.get("hostUsers") is False:
        return None
    own = {one["name"]: _context(one).get("runAsNonRoot") for one in _containers(spec)}
    pod = _context(spec).get("runAsNonRoot")
    wrong = [name for name, value in own.items() if value is False]
    setters = [*(["pod"] if pod is False else []), *([_named(wrong)] if wrong else [])]
    if setters:
        return Violation("runAsNonRoot != true", f"{' and '.join(setters)} must not set securityContext.runAsNonRoot=false")
    silent = [name for name, value in own.items() if value is None and not pod]
    return Violation("runAsNonRoot != true",
                     f"pod or {_named(silent)} must set securityContext.runAsNonRoot=true") if silent else None


def _root_user(spec: Object) -> Violation | None:
    if spec.get("hostUsers") is False:
        return None
    roots = [one["name"] for one in _containers(spec) if _context(one).get("runAsUser") == 0]
    setters = [*(["pod"] if _context(spec).get("runAsUser") == 0 else []), *([_named(roots)] if roots else [])]
    return Violation("runAsUser=0", f"{' and '.join(setters)} must not set runAsUser=0") if setters else None


def _seccomp_restricted(spec: Object) -> Violation | None:
    if (found := _seccomp_baseline(spec)) is not None:
        return found
    silent = [one["name"] for one in _containers(spec) if _profile(one) is None and _profile(spec) is None]
    return Violation("seccompProfile", f"pod or {_named(silent)} must set securityContext.seccompProfile.type to "
                     '"RuntimeDefault" or "Localhost"') if silent else None


_CHECKS: Final = (
    _Check("baseline", 0, _capabilities_baseline, overridden_since=22),
    _Check("baseline", 0, _host_namespaces),
    _Check("baseline", 0, _host_paths, overridden_since=0),
    _Check("baseline", 0, _host_ports),
    _Check("baseline", 34, _host_probes),
    _Check("baseline", 0, _privileged),
    _Check("baseline", 19, _seccomp_baseline, overridden_since=19),
    _Check("restricted", 8, _escalation),
    _Check("restricted", 22, _capabilities_restricted),
    _Check("restricted", 0, _volumes),
    _Check("restricted", 0, _non_root),
    _Check("restricted", 23, _root_user),
    _Check("restricted", 19, _seccomp_restricted),
)
"""In the order in which violations are told: by level, then by the name of the check."""
