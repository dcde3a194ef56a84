"""What must hold after every write: the rules, each told what reached the API server and who sent it.

A process is held to what it can know: what its watches had shown when it decided, its own writes, and, before it deletes a
driver pod, what its last look has shown. What others did since is not its fault. The limits alone are held to what is true: see
`admissions`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpuward import names
from gpuward.kube.resources import LEASES
from gpuward.model.actions import PatchNode
from gpuward.model.passes import Outcome
from gpuward.model.plan import Plan
from gpuward.model.states import TRANSITIONS, State, parse_state
from gpuward.model.waits import Undecided
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.store import Event
from tools.simulate import coverage, known, patience, rules, said
from tools.simulate.admissions import GrantLedger
from tools.simulate.gangs import Gangs
from tools.simulate.history import History, sight_of
from tools.simulate.loops import Loops
from tools.simulate.machines import Machines
from tools.simulate.made import CLUSTER, LEFT_OUT
from tools.simulate.notices import Notices
from tools.simulate.people import POLICIES, ROLLOUTS, is_driver
from tools.simulate.policies import NVIDIA_DRIVERS
from tools.simulate.rules import NodeChange

if TYPE_CHECKING:
    from tools.simulate.process import Process
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

STILL = 61.0
"""Seconds without any change of pods after which a cluster is idle: words of a condition follow within a minute."""
REFUSAL_REST = 1.99
"""Seconds for which a refused pod is not asked again; a little less than two, since a float is no exact time."""


class Violation(msgspec.Struct, frozen=True):
    """Say which rule was broken, when, and about which node."""

    rule: str
    at: float
    node: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}" + (f" (node {self.node})" if self.node else "") + f" at {self.at:.3f} s"


class Moment(NamedTuple):
    """Hold a time, and the version of the settings that were known then."""

    at: float
    version: int


class Watch:
    """Check every write, and count what was met."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.history = History()
        self.ledger = GrantLedger()
        self.violations: list[Violation] = []
        self.met: Counter[str] = Counter()
        self.first: dict[str, float] = {}
        self.complete = False
        self.refused = False
        """Whether a node was held at the end by what the API server refused before."""
        """Whether a new process should find nothing that it would have to write, but who it is."""
        self.resting = False
        """Whether nothing should be written any more."""
        self._stirred = 0.0
        """When pods changed last by anybody else's doing: a driver that crashes for ever is no idle cluster."""
        self._looks: dict[tuple[str, str], dict[str, bool]] = {}
        """What the last look of a process at a node found that must leave, and whether it only holds the driver."""
        self._refused: dict[tuple[str, str], float] = {}
        self._overwritten: set[str] = set()
        self._annotated: set[tuple[str, str]] = set()
        self._digests: dict[str, list[tuple[int, float, str]]] = {}
        """The digests of each driver DaemonSet's templates, by its uid, with the version and the time from which on."""
        self.machines = Machines(world)
        self.loops = Loops(world)
        self.notices = Notices(world)
        self.gangs = Gangs(world)
        self.driver_daemonsets: dict[str, int] = {}
        """The version at which each driver DaemonSet was made, by its uid."""
        self._bound: dict[str, int] = {}
        self.sent: dict[str, Moment] = {}
        """When the first node was started for a target, and which settings were known then."""
        self._requested: dict[str, float] = {}
        self.of_driver_managers: set[int] = set()
        """The versions at which the driver manager of a driver pod made its node unschedulable."""
        self.began: dict[str, int] = {}
        """The version of the nodes that was known when a node was started last."""

    def breach(self, rule: str, message: str, node: str = "") -> None:
        """Note that a rule was broken; the run ends at once, unless it was told to go on after that."""
        if rule in self.world.scenario.spared:
            self.met[f"spared {rule}"] += 1
            return
        self.violations.append(Violation(rule, self.world.now() - self.world.began, node, message))
        self.world.over.set()

    # Requests.

    def asked(self, process: Process, request: Request) -> None:
        """Take a request before anything disturbs it: a pod that was refused is left alone for two seconds."""
        self.loops.asked(process, request)
        if not request.path.endswith("/eviction"):
            return
        now = self.world.now()
        refused = self._refused.get((process.name, _eviction(request)))
        if refused is not None and now - refused < REFUSAL_REST and process.jumped_at < refused:
            self.breach("refused pods rest", f"{request.path} is asked again after {now - refused:.3f} s")

    def told(self, process: Process, request: Request, answer: Answer | Stream) -> None:
        """Take an answer as the process gets it."""
        if request.path.endswith("/eviction") and isinstance(answer, Answer) and answer.status == 429:
            self._refused[process.name, _eviction(request)] = self.world.now()

    def answered(self, process: Process, request: Request, answer: Answer | Stream) -> None:
        """Take an answer as the server gives it: a list of a node's pods is a last look."""
        fields = request.query.get("fieldSelector", "")
        if request.method == "GET" and request.path.endswith("/pods") and fields.startswith("spec.nodeName="):
            node = fields.partition("=")[2]
            self._looks[process.name, node] = self.world.gpu_users(node)

    # Changes.

    def changed(self, event: Event) -> None:
        """Take a change of the store."""
        writer = self.world.writer
        self.machines.changed(event)
        if writer is not None:
            writer.writes += 1
            still = self.world.now() - self._stirred > STILL
            tells = event.resource_key in ("nodes", POLICIES, NVIDIA_DRIVERS)
            # A refusal that others kept from being repeated is remembered by one process alone.
            # How long a node has been idle is counted anew by a new process.
            counts_anew = self.history.setting("opportunistic")[0] is not None
            stirred = tells and (not still or self.world.scenario.stays_broken or self.refused or counts_anew)
            if self.complete and event.resource_key not in LEFT_OUT and not stirred:
                self.breach("a new process finds nothing to do", _what(event))
            if self.resting and still and not _tells_of_rest(event):
                self.breach("idle periods write nothing", _what(event))
        elif event.resource_key in ("pods", "daemonsets.apps"):
            self._stirred = self.world.now()
        if event.resource_key == "nodes":
            self._node_changed(event, writer)
        elif event.resource_key == "pods":
            if event.obj["spec"].get("nodeName"):
                self._bound.setdefault(event.obj["metadata"]["uid"], event.version)
            self._pod_changed(event, writer)
        else:
            self._note(event, writer)

    def _note(self, event: Event, writer: Process | None) -> None:
        """Remember what nodes and pods are judged by later."""
        if event.resource_key == POLICIES:
            self.history.saw_cluster_policy(event.version, _unless_deleted(event), writer.name if writer is not None else None,
                                            event.obj["metadata"]["name"])
        elif event.resource_key == NVIDIA_DRIVERS:
            self.history.saw_policy(event.version, _unless_deleted(event), writer.name if writer is not None else None,
                                    event.obj["metadata"]["name"])
        elif event.resource_key == ROLLOUTS:
            self.history.saw_settings(event.version, {} if event.type == "DELETED" else event.obj["spec"], self.world.now())
        elif event.resource_key == str(LEASES):
            self.ledger.changed(event.obj, writer, self.world)
        elif event.resource_key == "daemonsets.apps" and is_driver(event.obj):
            uid = event.obj["metadata"]["uid"]
            self.driver_daemonsets.setdefault(uid, event.version)
            digest = rules.digest_of(event.obj["spec"]["template"]["spec"])
            self._digests.setdefault(uid, []).append((event.version, self.world.now(), digest))

    def record_was_overwritten(self, node: str) -> None:
        """Take it that somebody wrote nonsense over the memory of a node's upgrade: whose cordon it carries is lost with it."""
        self._overwritten.add(node)

    def _node_changed(self, event: Event, writer: Process | None) -> None:
        name = event.obj["metadata"]["name"]
        before = self.history.now(name)
        exists = event.type != "DELETED"
        by = writer.name if writer is not None else None
        after = sight_of(event.obj, event.version, by, before if before and before.exists else None, exists=exists)
        if self.world.actor() == CLUSTER and after.cordoned and after.cordoned_at == event.version:
            self.of_driver_managers.add(event.version)
        change = NodeChange(name, before, after, writer, self.history) if writer is not None and before is not None else None
        if (wrong := self.notices.node_changed(event, writer, change)) is not None:
            self.breach("a notice gives all of its time", wrong, name)
        if change is not None:
            if change.admits:
                self._note_start(change)
                if (wrong := self.gangs.admitted(change)) is not None:
                    self.breach("no gang is sent away twice", wrong, name)
            for rule in rules.NODE_RULES:
                if (message := rule(change, self.world)) is not None:
                    self.breach(rule.__name__.replace("_", " "), message, name)
        self.history.saw_node(after, name)
        self._annotations_changed(event, writer)
        if not exists:
            self._overwritten.discard(name)

    def _note_start(self, change: NodeChange) -> None:
        self.began[change.node] = change.writer.known["nodes"]
        self.loops.started(change.node)
        if (memory := change.after.memory()) is not None:
            self.sent.setdefault(memory.target, Moment(self.world.now(), change.writer.known["settings"]))

    def asked_for(self, node: str) -> float:
        """Return when somebody asked for the upgrade of a node last."""
        return self._requested.get(node, -math.inf)

    def _annotations_changed(self, event: Event, writer: Process | None) -> None:
        name, now = event.obj["metadata"]["name"], event.obj["metadata"].get("annotations") or {}
        old = ((event.old or {}).get("metadata") or {}).get("annotations") or {}
        changed = {(name, key) for key in now.keys() | old.keys() if now.get(key) != old.get(key)}
        self._annotated -= changed
        if any(key in now for _, key in changed if key in patience.REQUESTS):
            self._requested[name] = self.world.now()
        if writer is None and event.type != "DELETED":
            self._annotated |= {(node, key) for node, key in changed if key in now}

    def annotated_by_people(self, node: str, key: str) -> bool:
        """Tell whether an annotation of a node is as somebody else than an operator wrote it."""
        return (node, key) in self._annotated

    def _pod_changed(self, event: Event, writer: Process | None) -> None:
        pod = event.obj
        self.gangs.pod_changed(event)
        started = bool(event.obj["metadata"].get("deletionTimestamp")) or event.type == "DELETED"
        before = bool(event.old and event.old["metadata"].get("deletionTimestamp"))
        made = writer if event.type == "ADDED" and patience.is_staging(pod) else None
        if made is not None and (wrong := patience.wrong_staging_pod(pod, made, self.world)) is not None:
            self.breach("a pod for images takes nothing else", f"{pod['metadata']['name']}: {wrong}")
        if writer is None or not started or before or event.type == "ADDED":
            return
        node = pod["spec"].get("nodeName") or ""
        if pod["metadata"]["namespace"] == names.DEFAULT_NAMESPACE:
            if is_driver(pod):
                self._driver_pod_deleted(pod, node, writer)
            return
        evicted = writer.request is not None and writer.request.path.endswith("/eviction")
        if evicted:
            self.loops.evicted(writer, rules.owner_of(pod), node)
            self.gangs.evicted(pod, node)
        message = rules.forbidden_to_go(pod, writer, self.world) if evicted else rules.forbidden_to_kill(pod, writer, self.world)
        if message is not None:
            self.breach("no pod goes that the policy forbids", message, node)
        if (why := said.forbidden_to_empty(node, writer, self.world)) is not None:
            self.breach("no node is emptied that people want to be left alone", f"{pod['metadata']['name']} goes: {why}", node)
        if (why := patience.forbidden_before_idle(pod, node, writer, self.world)) is not None:
            self.breach("a rollout that waits for idle nodes evicts nobody", f"{pod['metadata']['name']} goes: {why}", node)
        if (why := self.notices.forbidden(pod, node)) is not None:
            self.breach("no pod is evicted before its notice is over", f"{pod['metadata']['name']} goes: {why}", node)

    def _has_driver(self, node: str) -> bool:
        """Tell whether a machine has a driver that could go: a pod that was left behind may have loaded none."""
        machine = self.machines.machine(node)
        return machine is None or bool(machine.driver)

    def _driver_pod_deleted(self, pod: Object, node: str, writer: Process) -> None:
        if not node:
            return  # no machine has a driver by it, and there is nowhere to look
        self.loops.deleted_driver_pod(writer, node, (pod["metadata"].get("labels") or {}).get(names.REVISION_HASH, ""))
        found = self._looks.pop((writer.name, node), None)
        digest = rules.digest_of(pod["spec"])
        if digest and digest in self.digests_known_to(writer):
            return
        if found is not None and known.may_ignore_holders(writer, self.history, node):
            found = {pod: only_holds for pod, only_holds in found.items() if not only_holds}
        if found is None:
            self.breach("a last look precedes the deletion of a driver pod", pod["metadata"]["name"], node)
        elif found and self._has_driver(node):
            self.breach("no driver is replaced under GPU pods", f"{pod['metadata']['name']} under {', '.join(found)}", node)

    # Decisions.

    def decided(self, process: Process, plan: Plan, outcomes: Sequence[Outcome]) -> None:
        """Take a plan and how its actions ended: moves are legal, no decision fails, and all that was met is counted."""
        for name, hold in plan.holds.items():
            self._meet(f"reason {hold.reason}")
            if plan.nodes[name].state is State.UPGRADE_REQUIRED and (gate := coverage.GATE_OF.get(hold.reason)):
                self.met[f"gate {gate}"] += 1
            if isinstance(hold.what, Undecided):
                self.breach("every node can be decided about", hold.what.error, name)
        for outcome in outcomes:
            action = outcome.action
            if not isinstance(action, PatchNode) or not action.entered:
                continue
            state = parse_state(action.expect_labels.get(names.UPGRADE_STATE))
            if state is None:
                continue  # somebody's garbage, which is on no way
            for entered in action.entered:
                if entered not in TRANSITIONS[state] and entered is not State.UNKNOWN:
                    self.breach("every move is in the table", f"{state} -> {entered}", action.node.name)
                if not outcome.error and not outcome.dropped:
                    self._meet(f"transition {state or 'unknown'} -> {entered or 'unknown'}")
                state = entered

    def _meet(self, name: str) -> None:
        """Count what was met: by itself, and after what kinds of faults it was."""
        self.met[name] += 1
        self.first.setdefault(name, round(self.world.now() - self.world.began, 3))
        self.met[coverage.in_mode(self.world.scenario.mode, name)] += 1
        for group in self.world.groups_at_work():
            self.met[str(coverage.Cell(self.world.scenario.mode, group, name))] += 1

    def digests_known_to(self, process: Process, at: float = math.inf) -> set[str]:
        """Return what the driver DaemonSets asked for when a process decided, or have asked for since; or since a time `at` which
        it says that it decided: what it does may take long, and it decides on about other nodes meanwhile.
        """
        shown = process.known["daemonsets"]
        return {text for seen in self._digests.values() for number, (_, _, text) in enumerate(seen)
                if number + 1 == len(seen) or seen[number + 1][0] > shown or seen[number + 1][1] > at}

    def asked_since(self, target: str) -> float:
        """Return since when the DaemonSet of a revision has asked for the driver that it asks for; its labels may be newer."""
        revisions = self.world.sandbox.store.list("controllerrevisions.apps", names.DEFAULT_NAMESPACE)
        owners = {ref["uid"] for each in revisions if (each["metadata"].get("labels") or {}).get(names.REVISION_HASH) == target
                  for ref in each["metadata"].get("ownerReferences") or ()}
        found = [self._digests[uid] for uid in owners if uid in self._digests]
        return min(map(_unchanged_since, found), default=0.0)

    def bound_at(self, pod: Object) -> int:
        """Return the version at which a pod got its node."""
        return self._bound.get(pod["metadata"]["uid"], 0)

    def is_overwritten(self, node: str) -> bool:
        """Tell whether somebody wrote nonsense over the memory of a node's upgrade."""
        return node in self._overwritten


def _tells_of_rest(event: Event) -> bool:
    """Tell whether an event says for the first time that nothing goes on: that takes its time."""
    return event.type == "ADDED" and event.resource_key == "events" and str(event.obj.get("reason")).endswith("Blocked")


def _unless_deleted(event: Event) -> Object | None:
    return None if event.type == "DELETED" else event.obj


def _unchanged_since(digests: Sequence[tuple[int, float, str]]) -> float:
    """Return since when a DaemonSet has asked for the same driver."""
    last = digests[-1][2]
    *_, (_, at, _) = takewhile(lambda one: one[2] == last, reversed(digests))
    return at


def _eviction(request: Request) -> str:
    body = msgspec.json.decode(request.body)
    uid = ((body.get("deleteOptions") or {}).get("preconditions") or {}).get("uid", "")
    return f"{request.path} {uid}"


def _what(event: Event) -> str:
    meta = event.obj["metadata"]
    before = (event.old or {"metadata": {}})["metadata"]
    changed = [f"{key}={(meta.get(field) or {}).get(key)!r:.80}" for field in ("labels", "annotations")
               for key in sorted({**(before.get(field) or {}), **(meta.get(field) or {})})
               if (before.get(field) or {}).get(key) != (meta.get(field) or {}).get(key)]
    return " ".join((event.type, event.resource_key, f"{meta.get('namespace', '')}/{meta['name']}", *changed[:3]))
