"""Read the facts that `gpuward check` judges. What may not be read is a fact too."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from gpuward import errors, names
from gpuward.cli.connect import unsupported
from gpuward.cli.leader import find_leader, judge
from gpuward.crd.generate import all_crds
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.lease.others import Holder, leases_named
from gpuward.kube.resources import GVR
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView
from gpuward.operands.wanted import wanted_by
from gpuward.policy.nvidiadrivers import PoliciesInForce, PolicyReader
from gpuward.policy.refused import refusals
from gpuward.ports import Clock
from gpuward.report.checks.facts import Inspected, Named, Object, OtherOperator, Policy, Right, Rights, Unseen
from gpuward.wire.nodes import node_view
from gpuward.wire.policies import oldest_first, policy_view

AT_ONCE: Final = 16
"""Questions that are asked at the same time."""
PRIORITY_CLASSES: Final = GVR("scheduling.k8s.io", "v1", "priorityclasses", False)
_OF_PODS: Final = {"imagePullSecrets": ("Secret", resources.SECRETS), "priorityClassName": ("PriorityClass", PRIORITY_CLASSES)}
"""Fields of policies that name what pods are made with."""
_ALWAYS: Final = frozenset({"system-node-critical", "system-cluster-critical"})
"""PriorityClasses that every cluster has."""
OF_HOOKS: Final = f"{names.JOB_NAME} in (gpu-operator-upgrade-crd,gpu-operator-cleanup-crd,gpu-operator-cleanup-nodes)"
"""The pods of the chart's hooks; those of NVIDIA's chart have Jobs of the first two names."""
RULES_FILE: Final = "operator.yaml"
ADDED_RULES_FILE: Final = "nvidia-chart-rights.yaml"
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""It depends on how PyYAML was built; the other one takes ten times as long."""
DATE_RESOLUTION: Final = 0.5
"""Seconds that a Date header leaves out, on average."""


async def inspected(client: Client, namespace: str, clock: Clock) -> Inspected:
    """Return all that is known of a cluster.

    Raises:
        Unreachable: nobody answers.
    """
    version = (await client.server_version()).git_version
    ahead = clock.now() - client.date - DATE_RESOLUTION if client.date is not None else None
    wanted = tuple(all_crds())
    crd_names = [crd["metadata"]["name"] for crd in wanted]
    # What does not follow from another answer is asked together.
    theirs, rest = await asyncio.gather(
        asyncio.gather(
            _nodes_and_policies(client, namespace), _operator(client, namespace), _operators(client, namespace, clock),
            _listed(client, Selection(resources.PODS, namespace, labels=OF_HOOKS)), unsupported(client)),
        asyncio.gather(
            _got(client, resources.NAMESPACES, namespace), _webhooks(client),
            _listed(client, Selection(resources.RUNTIME_CLASSES)),
            asyncio.gather(*(_got(client, resources.CUSTOM_RESOURCE_DEFINITIONS, name) for name in crd_names))))
    (nodes, policy, named), (deployments, operator_pods, rights), operators, hook_pods, left_alone = theirs
    place, webhooks, runtime_classes, crds = rest
    return Inspected(
        namespace=namespace, version=version, ahead=ahead, nodes=nodes, deployments=deployments, policy=policy, named=named,
        operator_pods=operator_pods, hook_pods=_objects(hook_pods), wanted_crds=wanted,
        crds={name: crd for name, crd in zip(crd_names, crds, strict=True) if crd is not None}, place=place, rights=rights,
        webhooks=webhooks, operators=operators, unsupported=left_alone, runtime_classes=_objects(runtime_classes),
    )


async def _nodes_and_policies(client: Client, namespace: str
                              ) -> tuple[tuple[NodeView, ...] | Unseen, Policy | Unseen, Named | Unseen]:
    listed = await _listed(client, Selection(resources.NODES))
    nodes = listed if isinstance(listed, Unseen) else tuple(map(node_view, listed))
    return nodes, *await _policies(client, namespace, nodes)


async def _operator(client: Client, namespace: str
                    ) -> tuple[tuple[Object, ...] | Unseen, tuple[Object, ...] | Unseen, Rights | Unseen]:
    """Return the operator's Deployments, their pods and what it may do."""
    deployments = await _deployments(client, namespace)
    return deployments, *await asyncio.gather(
        _pods_of(client, deployments), _rights(client, namespace, _account(deployments, namespace)))


async def _listed(client: Client, selection: Selection) -> tuple[msgspec.Raw, ...] | Unseen:
    """Return the objects of a kind; none where it is not installed."""
    try:
        return tuple([item async for item in client.list(selection)])
    except errors.NotFound:
        return ()
    except errors.ApiError as error:
        return Unseen(error.message)


async def _got(client: Client, resource: GVR, name: str, namespace: str = "") -> Object | Unseen | None:
    try:
        return (await client.get(resource, name, namespace)).object()
    except errors.NotFound:
        return None
    except errors.ApiError as error:
        return Unseen(error.message)


def _objects(items: tuple[msgspec.Raw, ...] | Unseen) -> tuple[Object, ...] | Unseen:
    return items if isinstance(items, Unseen) else tuple(msgspec.json.decode(bytes(item), type=dict[str, Any]) for item in items)


async def _deployments(client: Client, namespace: str) -> tuple[Object, ...] | Unseen:
    labels = f"app={names.OPERATOR_NAME}"
    found = _objects(await _listed(client, Selection(resources.DEPLOYMENTS, labels=labels)))
    if not isinstance(found, Unseen):
        return found
    here = _objects(await _listed(client, Selection(resources.DEPLOYMENTS, namespace, labels=labels)))
    return found if isinstance(here, Unseen) else here


async def _pods_of(client: Client, deployments: tuple[Object, ...] | Unseen) -> tuple[Object, ...] | Unseen:
    found: list[Object] = []
    known = () if isinstance(deployments, Unseen) else deployments
    for place in sorted({one["metadata"]["namespace"] for one in known}):
        pods = _objects(await _listed(client, Selection(resources.PODS, place, labels=f"app={names.OPERATOR_NAME}")))
        if isinstance(pods, Unseen):
            return pods
        found += pods
    return tuple(found)


async def _operators(client: Client, namespace: str, clock: Clock) -> tuple[OtherOperator, ...] | Unseen:
    try:
        leases = {Holder.of(lease).namespace: lease for lease in await leases_named(client, names.LEADER_LEASE)}
    except errors.ApiError:
        leader = await find_leader(client, namespace, clock)
        known = leader.running or leader.holder or leader.renewed
        return (OtherOperator(namespace, leader.message, bool(leader.running)),) if known else Unseen(leader.message)
    now = clock.now() if client.date is None else client.date
    judged = [(place, judge(leases.get(place), now, f"{place}/{names.LEADER_LEASE}"))
              for place in sorted({*leases, namespace})]
    if not any(leader.running for _, leader in judged) and (seen := await find_leader(client, namespace, clock)).running:
        return (OtherOperator(namespace, seen.message, True),)  # it renews its Lease, though by the clocks that has run out
    return tuple(OtherOperator(place, leader.message, bool(leader.running)) for place, leader in judged)


async def _webhooks(client: Client) -> tuple[Object, ...] | Unseen:
    found: list[Object] = []
    for resource in (resources.VALIDATING_WEBHOOKS, resources.MUTATING_WEBHOOKS):
        some = _objects(await _listed(client, Selection(resource)))
        if isinstance(some, Unseen):
            return some
        found += some
    return tuple(found)


async def _policies(client: Client, namespace: str, nodes: Any) -> tuple[Policy | Unseen, Named | Unseen]:
    found = []
    for resource in (resources.CLUSTER_POLICIES, resources.NVIDIA_DRIVERS, resources.ROLLOUT_POLICIES):
        listed = await _listed(client, Selection(resource))
        if isinstance(listed, Unseen):
            return listed, listed
        found.append(oldest_first(map(policy_view, listed)))
    policies, drivers, rollouts = found
    by_name = {} if isinstance(nodes, Unseen) else {node.name: node for node in nodes}
    read = PolicyReader().read(Snapshot(namespace, nodes=by_name, policies=policies, drivers=drivers, rollout_policies=rollouts))
    view = read.policy.view
    ignored = [one.name for one in policies if view is not None and one.name != view.name]
    own = view is not None and not (read.in_force or read.policy.problems)
    unfollowed = [one.name for one in drivers if own and not one.deleting]
    policy = Policy(view.name if view is not None else "", tuple(_problems(read)), tuple(ignored),
                    driverless=read.in_force and not drivers, unfollowed=tuple(unfollowed), absent=read.policy.upgrades.absent)
    return policy, await _named(client, namespace, read)


def _problems(read: PoliciesInForce) -> Iterator[str]:
    """Yield what is wrong with the policies, of a ClusterPolicy every field."""
    view, told = read.policy.view, refusals(read)
    if view is not None and read.policy.problems:
        yield from (f"ClusterPolicy {view.name}: {problem}" for problem in read.policy.problems)
        told = told[1:]
    yield from told


async def _named(client: Client, namespace: str, read: PoliciesInForce) -> Named:
    wanted = wanted_by(read)
    kinds = [("ConfigMap", resources.CONFIG_MAPS, wanted.config_maps), ("Secret", resources.SECRETS, wanted.secrets)]
    every, missing, hidden = [], [], []
    for kind, resource, wanted_names in kinds:
        for name in sorted(wanted_names):
            found = await _got(client, resource, name, namespace)
            every.append(f"{kind} {name}")
            if found is None:
                missing.append(f"{kind} {name}")
            elif isinstance(found, Unseen):
                hidden.append(f"{kind} {name}: {found.why}")
    absent = []
    for field, name in sorted(_of_pods(read)):
        kind, resource = _OF_PODS[field]
        found = await _got(client, resource, name, namespace if field == "imagePullSecrets" else "")
        every.append(f"{kind} {name}")
        if found is None:
            absent.append(f"{kind} {name}")
        elif isinstance(found, Unseen):
            hidden.append(f"{kind} {name}: {found.why}")
    return Named(tuple(every), tuple(missing), tuple(hidden), tuple(absent))


def _of_pods(read: PoliciesInForce) -> set[tuple[str, str]]:
    """Return the fields of policies that name what pods are made with, and the names."""
    views = [each.view for each in read.active] if read.in_force else []
    bodies: list[object] = [view.body.get("spec") for view in (read.policy.view, *views) if view is not None]
    found: set[tuple[str, str]] = set()
    while bodies:
        body = bodies.pop()
        for key, value in body.items() if isinstance(body, Mapping) else ():
            if key in _OF_PODS:
                names_there = value if isinstance(value, list) else [value]
                found |= {(key, name) for name in names_there if isinstance(name, str) and name and name not in _ALWAYS}
            else:
                bodies.append(value)
    return found


def _account(deployments: tuple[Object, ...] | Unseen, namespace: str) -> str:
    """Return the ServiceAccount that the operator in a namespace runs as, or would."""
    own = [] if isinstance(deployments, Unseen) else [one for one in deployments if one["metadata"]["namespace"] == namespace]
    spec = own[0]["spec"]["template"]["spec"] if own else {}
    return str(spec.get("serviceAccountName") or names.OPERATOR_NAME)


async def _rights(client: Client, namespace: str, account: str) -> Rights | Unseen:
    """Ask for every right of the operator's ServiceAccount; where that is not there, or cannot be asked about, for our own."""
    rights = sorted(needed(namespace))
    is_there = await _got(client, resources.SERVICE_ACCOUNTS, account, namespace)
    whose = f"system:serviceaccount:{namespace}:{account}"
    if isinstance(is_there, Unseen):
        return is_there
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    subject = {"user": whose, "groups": groups} if is_there is not None else {}
    try:
        missing = await _missing(client, rights, subject)
    except errors.ApiError as error:
        return Unseen(error.message)
    told = f"ServiceAccount {account}" if subject else "your own user"
    return Rights(told, bool(subject), len(rights), missing, frozenset(missing) <= added_rights(namespace))


async def _missing(client: Client, rights: Iterable[Right], subject: Mapping[str, Any]) -> tuple[Right, ...]:
    resource = resources.ACCESS_REVIEWS if subject else resources.OWN_ACCESS_REVIEWS
    kind = "SubjectAccessReview" if subject else "SelfSubjectAccessReview"
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(right: Right) -> Right | None:
        base, _, sub = right.resource.partition("/")
        attributes = {"group": right.group, "resource": base, "subresource": sub, "verb": right.verb, "name": right.name,
                      "namespace": right.namespace}
        review = {"apiVersion": resource.api_version, "kind": kind, "metadata": {},
                  "spec": {**subject, "resourceAttributes": {key: value for key, value in attributes.items() if value}}}
        async with turns:
            answer = (await client.create(resource, review)).object()
        return None if (answer.get("status") or {}).get("allowed") else right

    answers = await asyncio.gather(*map(ask, rights), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return tuple(answer for answer in answers if isinstance(answer, Right))


def rules_file(name: str = RULES_FILE) -> Path:
    """Return a manifest that is shipped, if not told otherwise the operator's."""
    packaged = Path(__file__).with_name(name)
    return packaged if packaged.exists() else Path(__file__).parents[3] / "deploy" / name


def needed(namespace: str) -> Iterator[Right]:
    """Yield every right of the roles that are shipped, each once, for an operator in a namespace."""
    yield from dict.fromkeys(_rights_in(RULES_FILE, namespace))


def added_rights(namespace: str) -> frozenset[Right]:
    """Return the rights that the manifest for NVIDIA's chart gives in a namespace: gpuward can do without these."""
    return frozenset(_rights_in(ADDED_RULES_FILE, namespace))


def _rights_in(name: str, namespace: str) -> Iterator[Right]:
    objects = [one for one in yaml.load_all(rules_file(name).read_text(encoding="utf-8"), Loader=_LOADER) if one]
    roles = [one for one in objects if one["kind"] in ("ClusterRole", "Role")]
    expand = partial(_expanded, namespace)
    yield from (right for role in roles for rule in role["rules"] for right in expand(role["kind"], rule))


def _expanded(namespace: str, kind: str, rule: Mapping[str, Any]) -> Iterator[Right]:
    place = namespace if kind == "Role" else ""
    own = {names.DEFAULT_NAMESPACE: namespace} if rule["resources"] == ["namespaces"] else {}
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                named = rule.get("resourceNames") or [""]
                yield from (Right(group, resource, verb, own.get(name, name), place) for name in named)
