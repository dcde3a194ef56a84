"""One run: a sandbox with its nodes and workloads, the operator's processes, the faults in their turn, and the end."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec
import structlog

from gpuward import names
from gpuward.cli import logs
from gpuward.kube.lease.rules import new_lease
from gpuward.kube.resources import LEASES
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE, cpu_node, fleet, operator_place
from gpuward.sandbox.machine import MODEL_ANNOTATION
from kubesandbox import errors
from kubesandbox.builders import namespace
from kubesandbox.cluster import WATCH_LAG_SECONDS
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.store import Event
from kubesandbox.timeloop import EPOCH, run_virtual
from tools.simulate import ending, modes, people, policies
from tools.simulate.commands import Terminal
from tools.simulate.drives import Drives
from tools.simulate.faults import KINDS
from tools.simulate.faults.kinds import End
from tools.simulate.made import CLUSTER, PEOPLE, Made
from tools.simulate.modes import kernel_of
from tools.simulate.planted import planted
from tools.simulate.process import Process
from tools.simulate.prometheus import SimulatedPrometheus
from tools.simulate.scenario import Fault, Scenario
from tools.simulate.watch import Violation, Watch

Object = dict[str, Any]
Proceed = Callable[[], Answer | Stream]
Trouble = Callable[[Request, Proceed], Answer | Stream]

UNUSED: Final = ("dcgm", "dcgmExporter", "gfd", "migManager", "nodeStatusExporter")
"""Operands that have no part in an upgrade; without them runs take half the time."""
AFTER: Final = 60.0
"""Seconds for which what happens counts as happening after a fault."""
BUGS: Final = ("A pass failed", "Traceback")


class ToldPlan(msgspec.Struct, frozen=True):
    """Hold one line of a run's story."""

    at: float
    about: str
    text: str


class RunResult(msgspec.Struct, frozen=True):
    """Hold how a run ended."""

    seed: int
    digest: str
    virtual_seconds: float
    writes: int
    violation: Violation | None
    met: dict[str, int]
    first: dict[str, float] = {}
    """When each transition and reason was met first, in virtual seconds."""
    story: tuple[ToldPlan, ...] = ()


class SimulatedWorld(Drives):
    """Play one run."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self.scenario = scenario
        self.began = EPOCH
        self.offset = 0.0
        """By how much the operator's clock is ahead."""
        self.writer: Process | None = None
        self.people_act = False
        """Whether what is written now is somebody's doing in the run."""
        self.heals = False
        """Whether the faults are over, so that nothing is put off any more."""
        self.made = Made()
        self._at_work: dict[str, float] = {}
        self.processes: list[Process] = []
        self._leader: Process | None = None
        self.troubles: list[Trouble] = []
        self.lags: dict[str, float] = {}
        self.over = asyncio.Event()
        self.sandbox = Sandbox(seed=scenario.seed, watch_delay=self._lag)
        self.watch = Watch(self)
        self.terminal = Terminal(self)
        self.prometheus = SimulatedPrometheus(self)
        self.story: list[ToldPlan] = []
        self.may_kill = bool((scenario.rollout or {}).get("killAtDeadline"))
        self._latency = scenario.latency
        self._names = itertools.count(1)
        self._hash = hashlib.sha256()
        self._usual: dict[str, float] = {}
        self._ends: list[tuple[float, int, End]] = []

    # Time and delays.

    def now(self) -> float:
        """Return the virtual time."""
        return asyncio.get_running_loop().time()

    def _lag(self, resource: str) -> float:
        if resource not in self._usual:
            self._usual[resource] = Random(f"{self.scenario.seed}/{resource}").uniform(*WATCH_LAG_SECONDS)
        return self.lags.get(resource, self._usual[resource])

    def usual_lag(self, resource: str) -> None:
        """Let a resource's watch lag no more than usual."""
        self.lags.pop(resource, None)

    @property
    def latency(self) -> float:
        """Return the seconds that a request of the operator takes."""
        return self._latency

    @latency.setter
    def latency(self, seconds: float) -> None:
        self._latency = seconds
        for process in self.processes:
            process.transport.latency = seconds

    def slow_down(self, process: Process, seconds: float) -> None:
        """Let the requests of one process take long to arrive, as from a machine that is too busy to keep the Lease."""
        process.transport.latency = max(process.transport.latency, seconds)

    def usual_latency(self) -> None:
        """Let requests take no longer than usual."""
        self.latency = self.scenario.latency

    # The operator.

    @property
    def leader(self) -> Process:
        """Return the process that was elected last."""
        assert self._leader is not None
        return self._leader

    def begin_operator(self) -> None:
        """Start a process of the operator that knows nothing but what the API says, and is elected at once."""
        self.elect(self.begin_standby())

    def begin_standby(self) -> Process:
        """Start a process of the operator that looks on until it is elected."""
        process = Process(self, f"operator-{next(self._names)}")
        process.transport.latency = self.latency
        self.processes.append(process)
        return process

    def elect(self, process: Process) -> None:
        """Let the Lease be a process's, as an election would. Who held it before is not told."""
        found = self.sandbox.store.find(str(LEASES), names.DEFAULT_NAMESPACE, names.LEADER_LEASE)
        lease = found or new_lease(names.DEFAULT_NAMESPACE)
        self.sandbox.apply({**lease, "spec": {**lease["spec"], "holderIdentity": process.name}})
        self._leader = process
        process.lead()

    def kill(self, process: Process) -> None:
        """End a process of the operator where it is."""
        process.kill()

    def kill_all(self) -> None:
        """End every process of the operator."""
        for process in self.running():
            process.kill()

    def running(self) -> list[Process]:
        """Return the processes that run, the oldest first."""
        return [process for process in self.processes if process.runs]

    def begin_operator_if_none(self) -> None:
        """Start a process unless another one was started meanwhile."""
        if not self.running():
            self.begin_operator()

    def disturbed(self, request: Request, proceed: Proceed) -> Answer | Stream:
        """Let every trouble there is have its way with a request."""
        for trouble in self.troubles:
            proceed = _within(trouble, request, proceed)
        return proceed()

    def break_watches(self) -> None:
        """Cut the open watches of every process."""
        for process in self.processes:
            process.transport.break_streams()

    # The run.

    async def play(self) -> RunResult:
        """Play the run to its end, or to the first rule that is broken."""
        logs.configure(self._logged, self.now)
        self.sandbox.store.subscribe(self._changed)
        await self.sandbox.start()
        self._furnish()
        self.begin_operator()
        for workload in self.scenario.workloads:
            self.run_workload(workload)
        if (self.scenario.rollout or {}).get("gangs"):
            self.run_gang()
        watching = asyncio.create_task(self.watch.machines.run())
        try:
            await self._play_faults()
            if not self.over.is_set():
                await ending.end(self)
        finally:
            watching.cancel()
            await self._stop()
        return self._result()

    def _furnish(self) -> None:
        """Put into the cluster what is there before the operator comes."""
        nodes = fleet(self.scenario.nodes, 0)
        found = [node["metadata"]["name"] for node in nodes]
        for node in nodes:
            name, labels = node["metadata"]["name"], node["metadata"]["labels"]
            self.add_machine(name, node["metadata"]["annotations"][MODEL_ANNOTATION], kernel_of(name, self.mode.kernels, found),
                             f"ubuntu{labels[names.NFD_OS_VERSION]}")
        self.sandbox.add_node(cpu_node("cpu-1"))
        for obj in (*operator_place(), namespace(WORKLOAD_NAMESPACE), *policies.crds()):
            self.sandbox.apply(obj)
        self.sandbox.apply(self._first_policy())
        for driver in self.mode.drivers if modes.CRD not in self.mode.switches else ():
            self.add_driver(driver, self.scenario.random(f"NVIDIADriver {driver}"), precompiled=self.mode.precompiled)
        if self.scenario.rollout is not None:
            self.set_rollout_policy(dict(self.scenario.rollout))

    async def _play_faults(self) -> None:
        coming = list(reversed(self.scenario.faults))
        while True:
            nexts = [fault.at for fault in coming[-1:]] + [self._ends[0][0] for _ in self._ends[:1]]
            at = min([*nexts, self.scenario.seconds])
            if await self._over_before(self.began + at) or at >= self.scenario.seconds:
                return
            if self._ends and self._ends[0][0] <= at:
                heapq.heappop(self._ends)[2]()
            else:
                self.begin_fault(coming.pop())

    def begin_fault(self, fault: Fault) -> None:
        """Let a fault happen; what ends it is put on the calendar."""
        self.watch.met[f"fault {fault.kind}"] += 1
        self.watch.met[f"{self.scenario.mode} | fault {fault.kind}"] += 1
        group = KINDS[fault.kind].group
        self._at_work[group] = max(self._at_work.get(group, 0.0), self.now() + fault.seconds + AFTER)
        self.tell("", f"fault {fault.kind}")
        end = self._try(lambda: KINDS[fault.kind].play(self, fault))
        if end is not None:
            self.later(fault.seconds, lambda: self._end(fault, end))

    def groups_at_work(self) -> list[str]:
        """Return the groups of faults of which one lasts or was there within the last minute."""
        return [group for group, until in self._at_work.items() if until >= self.now()]

    def later(self, seconds: float, act: End) -> None:
        """Put something on the calendar; all that is there happens at once when the faults end."""

        def happen() -> None:
            self._try(act)

        heapq.heappush(self._ends, (self.now() - self.began + seconds, next(self._names), happen))

    def _end(self, fault: Fault, end: End) -> None:
        self.tell("", f"end of {fault.kind}")
        end()

    def _try(self, act: Callable[[], End | None]) -> End | None:
        """Let somebody act on what may not be there any more."""
        before, self.people_act = self.people_act, True
        try:
            return act()
        except (errors.ApiError, KeyError):  # the API server refuses people, too
            return None
        finally:
            self.people_act = before

    def end_faults(self) -> None:
        """End every fault that lasts."""
        self.heals = True
        while self._ends:
            heapq.heappop(self._ends)[2]()

    async def _over_before(self, instant: float) -> bool:
        """Wait until an instant; return True as soon as the run is over."""
        return await self.rest(instant - self.now())

    async def rest(self, seconds: float) -> bool:
        """Let time pass; return True as soon as the run is over."""
        self._check_alive()
        if not self.over.is_set() and seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self.over.wait()
            except TimeoutError:
                self._check_alive()
        return self.over.is_set()

    def _check_alive(self) -> None:
        """Hold it against the operator if it has ended by itself, and against the sandbox if that has crashed."""
        if self.sandbox.simulation.queue.crash is not None:
            raise self.sandbox.simulation.queue.crash
        for process in self.processes:
            if process.task.done() and not process.task.cancelled() and (error := process.task.exception()) is not None:
                self.watch.breach("the operator runs on", f"{process.name} ended with {error!r}")

    async def _stop(self) -> None:
        self.terminal.close()
        for process in self.processes:
            process.kill()
        await asyncio.gather(*(process.task for process in self.processes), return_exceptions=True)
        await self.sandbox.stop()
        structlog.reset_defaults()

    def _result(self) -> RunResult:
        violation = self.watch.violations[0] if self.watch.violations else None
        writes = sum(process.writes for process in self.processes)
        return RunResult(self.scenario.seed, self._hash.hexdigest(), self.now() - self.began, writes, violation,
                      dict(sorted(self.watch.met.items())), self.watch.first, tuple(self.story))

    def _first_policy(self) -> Object:
        policy: Object = msgspec.json.decode(policies.first_policy())
        policy["metadata"]["name"] = people.POLICY
        driver = policy["spec"]["driver"]
        driver["upgradePolicy"] = dict(self.scenario.upgrade)
        driver["useNvidiaDriverCRD"] = bool(self.mode.drivers) and modes.CRD not in self.mode.switches
        if self.mode.precompiled and not self.mode.drivers:
            driver |= {"usePrecompiled": True, "version": modes.BRANCHES[0]}
        for operand in UNUSED:
            policy["spec"].setdefault(operand, {})["enabled"] = False
        return policy

    # What is seen.

    def _changed(self, event: Event) -> None:
        meta = event.obj["metadata"]
        who = self.writer.name if self.writer is not None else "-"
        self.made.changed(event, self.actor())
        line = (f"{event.version} {event.type} {event.resource_key} {meta.get('namespace', '')}/{meta['name']} {who} "
                f"{self.now():.6f}\n")
        self._hash.update(line.encode())
        people.tell_change(self, event, who)
        self.watch.changed(event)

    def actor(self) -> str:
        """Return who writes at this moment: a process of the operator, people, or the cluster itself."""
        if self.writer is not None:
            return self.writer.name
        return PEOPLE if self.people_act else CLUSTER

    def _logged(self, line: str) -> None:
        if any(bug in line for bug in BUGS):
            self.watch.breach("no pass fails", line[-600:])

    def tell(self, about: str, text: str) -> None:
        """Add a line to the story of the run."""
        self.story.append(ToldPlan(round(self.now() - self.began, 3), about, text))


def _within(trouble: Trouble, request: Request, proceed: Proceed) -> Proceed:
    return lambda: trouble(request, proceed)


def play(scenario: Scenario) -> RunResult:
    """Play a run in virtual time."""

    async def main() -> RunResult:
        return await SimulatedWorld(scenario).play()

    with planted(scenario.plant):
        return run_virtual(main)


__all__ = ["Fault", "RunResult", "SimulatedWorld", "ToldPlan", "play"]
