"""The driver manager at work: it looks, takes the plan's next step, and looks again, until the node is given back."""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gpuward import errors, names
from gpuward.agents.api import PASSING, ApiServer
from gpuward.agents.drivermanager import digest
from gpuward.agents.drivermanager.events import NodeEvents
from gpuward.agents.drivermanager.facts import Settings
from gpuward.agents.drivermanager.gather import DRIVER_ROOT, MOUNT_HELD, PID_FILE, Gatherer, host_driver
from gpuward.agents.drivermanager.newcomers import Newcomers
from gpuward.agents.drivermanager.plan import give_back, next_step, users_of_gpus
from gpuward.agents.drivermanager.refusals import Refusals
from gpuward.agents.drivermanager.steps import (
    Clean,
    Cordon,
    Evict,
    Finish,
    GiveUp,
    SetLabels,
    Step,
    UnbindVfio,
    Unload,
    Wait,
    WaitFor,
)
from gpuward.agents.drivermanager.vfio import PCI, bound_to_vfio
from gpuward.agents.host import Host, HostError, KernelBusyError, ModuleInUseError
from gpuward.agents.telling import Teller
from gpuward.agents.waiting import ToldToEndError, no_more_signals
from gpuward.model.views import Ref

HOUR: Final = 3600.0
DEADLINES: Final = {Wait.OPERANDS: 300.0, Wait.DRA_PLUGIN: 300.0, Wait.DEVICES: 300.0, Wait.MACHINES: 300.0,
                    Wait.MODULES: 30.0, Wait.MOFED: 600.0, Wait.ROOT: 30.0, Wait.VFIO: 30.0, Wait.NOUVEAU: 30.0,
                    Wait.KERNEL: 120.0}
"""Seconds. Evictions and drains have those of the settings."""
ANEW: Final = {Wait.DEVICES: Wait.MODULES, Wait.MACHINES: Wait.VFIO, Wait.EVICTION: Wait.DEVICES}
"""What has its whole time again once these have been waited for: it is not tried meanwhile."""
EVERY: Final = 2.0
"""Seconds between looks."""
RESTS: Final = 20.0
"""How many times as long the pause after a look is, at least, as that had a processor: there may be thousands of processes."""
LONGEST_REST: Final = 10.0
"""Seconds."""
STOOD_STILL: Final = 30.0
"""Seconds by which a pause is too long where the process was stopped, mostly with its machine: nothing could end meanwhile."""
INSISTING: Final = 30
"""How often something is written again that somebody undoes, at most once a look."""
GPU_HELD: Final = ("a GPU does not answer, or somebody does not give it up; see `dmesg` on the node, end what uses the GPU, "
                   "or else restart the node")
"""What may keep the kernel from doing what it was asked for, and what helps then; so MOUNT_HELD."""
LEAVING: Final = 60.0
"""Seconds in which the pod goes that is not for this node, before it counts as an error."""
LOOKING_AGAIN: Final = 60.0
"""Seconds in which others may be faster, one time after the other."""
GIVING_BACK: Final = 15.0
"""Seconds in which the node is tried to be given back: the kubelet may give the pod 30 to end. A request may take some more."""
NOTHING: Final = Finish({}, uncordon=False)


class DriverManagerError(errors.GpuwardError):
    """Say why no room could be made for the driver."""


def _processor_seconds() -> float:
    """Return for how long this process, and those that it has run, have had a processor."""
    return sum(os.times()[:4])


@dataclass(slots=True)
class DriverManager:
    """Make room on a node."""

    settings: Settings
    host: Host
    api: ApiServer
    teller: Teller
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    worked: Callable[[], float] = _processor_seconds
    _since: dict[Wait, float] = field(default_factory=dict, init=False)
    _events: NodeEvents = field(init=False)
    _refusals: Refusals = field(default_factory=Refusals, init=False)
    _newcomers: Newcomers = field(default_factory=Newcomers, init=False)
    _outrun: float | None = field(default=None, init=False)
    """Since when others have been faster."""
    _rest: float = field(default=EVERY, init=False)
    """Seconds until the next look."""
    _in_doubt: bool = field(default=False, init=False)
    """Whether a write to the node was sent that had no answer: it may still come through."""
    _stuck: str = field(default="", init=False)
    _undone: str = field(default="", init=False)
    _gone: set[str] = field(default_factory=set, init=False)
    """Modules that were unloaded, devices that were unbound and mounts that were detached: they may come again."""
    _written: Counter[str] = field(default_factory=Counter, init=False)
    """How often the cordon, and each label, was written."""

    def __post_init__(self) -> None:
        self._events = NodeEvents(self.settings.node, self.api, self.teller, self.monotonic)

    def uninstall(self, told: ToldToEndError | None = None) -> None:
        """Make room, unless it was told to end, or raise an error that says why not. In any case the node is given back as it
        was found.
        """
        gatherer = Gatherer(self.settings, self.host, self.api)
        try:
            if told is not None:
                raise told
            if version := host_driver(self.host):
                self._leave_to_host(version)
            digest.put_back(self.host)
            while not self._step(gatherer):
                pass
        except BaseException as error:
            try:  # noqa: SIM105  # one may have come with the error: to call suppress() would be the moment for it
                no_more_signals()
            except ToldToEndError:
                pass
            # Whoever is killed in the midst of it leaves why it ended all the same.
            self.teller.leave(f"{str(error) or type(error).__name__}: giving the node back")
            with self.api.within(GIVING_BACK):
                if became := self._give_back(gatherer):
                    error.add_note(became)
                if not isinstance(error, ToldToEndError):
                    self._events.failed(str(error))
            raise

    def _step(self, gatherer: Gatherer) -> bool:
        before = self.worked()
        gathered = gatherer.gather()
        self._rest = min(max(EVERY, RESTS * (self.worked() - before)), LONGEST_REST)
        facts = dataclasses.replace(gathered, refused=self._refusals.told, stuck=self._stuck, undone=self._undone)
        step = next_step(facts, self.settings, self._overdue())
        # Who uses a GPU for a moment now and then is not one who has not ended; who keeps modules from going for ever is.
        if not (self._gone or isinstance(step, Unload) or users_of_gpus(facts)):
            self._since.pop(Wait.DEVICES, None)
        try:
            if isinstance(step, Finish):
                self._finish(step, gatherer)
                self.teller.say("the driver that is loaded stays" if facts.loaded else "there is room for a driver")
                return True
            self._perform(step, gatherer)
        except (errors.Conflict, errors.NotFound) as error:  # what was seen is no longer so
            self._look_again(error)
        else:
            self._outrun = None
        return False

    def _look_again(self, error: errors.ApiError) -> None:
        now = self.monotonic()
        self._outrun = now if self._outrun is None else self._outrun
        if now - self._outrun >= LOOKING_AGAIN:
            raise DriverManagerError(f"nothing that was seen still held when it was acted on, for {LOOKING_AGAIN:g} s: {error}")
        self.teller.say(f"looking again: {error}")
        self.sleep(0.2 if now - self._outrun < EVERY else EVERY)

    def _perform(self, step: Step, gatherer: Gatherer) -> None:
        self._stuck = self._undone = ""
        match step:
            case Cordon():
                self._cordon(gatherer)
            case SetLabels(labels):
                self._pause(labels, gatherer)
            case Evict(pods, wait):
                self._evict(pods, wait)
            case WaitFor(wait, missing):
                self._wait(wait, f"waiting: {missing}")
            case Unload(modules, wait):
                self._unload(modules, wait)
            case Clean():
                self._clean()
            case UnbindVfio(devices):
                self._unbind(devices)
            case GiveUp(why):
                raise DriverManagerError(why)

    def _cordon(self, gatherer: Gatherer) -> None:
        self._give_up_insisting("", f"takes the cordon off {self.settings.node} again and again", gatherer)
        self.teller.say(f"cordoning {self.settings.node}")
        self._patch_node(gatherer, annotations={names.DRIVER_MANAGER_CORDON: "true"}, spec={"unschedulable": True})
        self._insist([""])

    def _pause(self, labels: Mapping[str, str], gatherer: Gatherer) -> None:
        for label in labels:
            self._give_up_insisting(label, f"sets the label {label} back again and again", gatherer)
        self.teller.say(f"pausing operands: {_said(labels)}")
        self._patch_node(gatherer, labels=labels, annotations={names.DRIVER_MANAGER_PAUSE: gatherer.note()})
        self._insist(tuple(labels))

    def _give_up_insisting(self, label: str, does: str, gatherer: Gatherer) -> None:
        if self._written[label] > INSISTING:
            raise DriverManagerError(f"{gatherer.writer(label) or 'somebody'} {does}")

    def _insist(self, written: Collection[str]) -> None:
        self._written.update(written)
        # A webhook, or another controller, may undo at once what is written: that is no reason to flood the API server.
        if any(self._written[each] > 1 for each in written):
            self.sleep(EVERY)

    def _finish(self, step: Finish, gatherer: Gatherer) -> bool:
        if not (step.labels or step.uncordon or step.forget or step.forget_pause):
            return False
        given = [*([_said(step.labels)] if step.labels else []), *(["uncordoned"] if step.uncordon else []),
                 *(["the cordon of before was lifted already"] if step.forget else []),
                 *(["the labels were given back already"] if step.forget_pause and not step.labels else [])]
        self.teller.say(f"giving {self.settings.node} back: {', '.join(given)}")
        notes = {names.DRIVER_MANAGER_CORDON: step.uncordon or step.forget, names.DRIVER_MANAGER_PAUSE: step.forget_pause}
        annotations = {note: None for note, goes in notes.items() if goes}
        self._patch_node(gatherer, labels=step.labels, annotations=annotations,
                         spec={"unschedulable": None} if step.uncordon else {})
        return True

    def _overdue(self) -> frozenset[Wait]:
        limit = self.settings.timeout or HOUR
        now = self.monotonic()
        return frozenset(wait for wait, since in self._since.items() if now - since >= DEADLINES.get(wait, limit))

    def _wait(self, wait: Wait, said: str) -> None:
        now = self.monotonic()
        begun = self._since.setdefault(wait, now)
        if wait in ANEW:
            self._since.pop(ANEW[wait], None)
        self.teller.say(said)
        self._events.waiting(wait, begun, said)
        self.sleep(self._rest)
        if (still := self.monotonic() - now - self._rest) >= STOOD_STILL:
            self.teller.say(f"stood still for {still:.0f} s: what is waited for has so much longer")
            self._since = {each: since + still for each, since in self._since.items()}

    def _evict(self, pods: tuple[Ref, ...], wait: Wait) -> None:
        self._since.setdefault(wait, self.monotonic())
        evicted = [pod for pod in self._newcomers.due(pods, wait, self.monotonic())
                   if wait not in self._overdue() and self._is_evicted(pod)]  # each may take a webhook its time
        self._newcomers.evicted(evicted, self.monotonic())
        refused = self._refusals.told
        asked = [f"{pod.namespace}/{pod.name}" + (f" ({refused[pod]})" if pod in refused else "") for pod in pods]
        again = f": {', '.join(back[:5])} came again after evictions" if (back := self._newcomers.returning(pods)) else ""
        more = f" and {len(asked) - 5} more" * (len(asked) > 5)
        self._wait(wait, f"waiting: pods {', '.join(asked[:5])}{more} to go{again}")

    def _is_evicted(self, pod: Ref) -> bool:
        """Ask a pod to go if it may be asked now; return whether it does."""
        if not self._refusals.is_due(pod, self.monotonic()):
            return False
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name, "namespace": pod.namespace},
                "deleteOptions": {"preconditions": {"uid": pod.uid}}}
        try:
            self.api.create(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction", body)
        except (errors.ApiError, errors.Unreachable) as error:  # of this pod alone, as of one that has gone
            if self._refusals.refused(pod, error, self.monotonic()):
                raise DriverManagerError(f"pod {pod} cannot be evicted: {error}") from None
            return False
        self._refusals.granted(pod)
        self.teller.say(f"evicted pod {pod.namespace}/{pod.name}")
        return True

    def _unload(self, modules: tuple[str, ...], wait: Wait) -> None:
        self._slow_down(modules, wait, "loaded again after it was unloaded")
        for module in modules:
            self.teller.say(f"unloading the module {module}")
            try:
                self._unload_one(module)
            except KernelBusyError as error:
                self._wait_for_kernel(error, GPU_HELD)
                return
            except ModuleInUseError as error:
                self._undone = ""
                self._wait(wait, f"waiting: {error}")
                return
            self._gone.add(module)
            self.teller.say(f"unloaded the module {module}")
        self._is_done(wait)

    def _unload_one(self, module: str) -> None:
        digest.set_aside(self.host)
        try:
            self.host.unload(module)
        except (ModuleInUseError, HostError):
            with suppress(HostError):  # the next attempt does it
                digest.put_back(self.host)
            raise
        digest.forget(self.host)

    def _slow_down(self, those: Collection[str], wait: Wait, how: str) -> None:
        """Wait where what was done has been undone by somebody, before it is done again: it may go on so for ever."""
        if back := [each for each in those if each in self._gone]:
            self._undone = f"{', '.join(back)} was {how}"
            self._wait(wait, f"waiting: {self._undone}")

    def _is_done(self, wait: Wait) -> None:
        """Give what may have to be done again, an hour later, its time anew, unless it is undone again and again."""
        if not self._undone:
            self._since.pop(wait, None)

    def _wait_for_kernel(self, error: KernelBusyError, why: str) -> None:
        self._stuck = f"{error}: {why}"
        self._wait(Wait.KERNEL, f"waiting: {error}")

    def _clean(self) -> None:
        points = self.host.mounts_below(DRIVER_ROOT)
        self._slow_down(dict.fromkeys(points), Wait.ROOT, "mounted again after it was detached")
        for point in points:
            try:
                self.host.unmount(point)
            except KernelBusyError as error:
                self._wait_for_kernel(error, MOUNT_HELD)
                return
        self.host.remove(PID_FILE)
        if left := self.host.mounts_below(DRIVER_ROOT):
            self._wait(Wait.ROOT, f"waiting: {', '.join(left)} is still mounted")
            return
        self._gone.update(points)
        self._is_done(Wait.ROOT)
        self.teller.say(f"detached {DRIVER_ROOT}")

    def _unbind(self, devices: tuple[str, ...]) -> None:
        self._slow_down(devices, Wait.VFIO, "given to a driver for virtual machines again after it was taken from it")
        for device in devices:
            override, driver = f"{PCI}/{device}/driver_override", f"{PCI}/{device}/driver"
            self.teller.say(f"taking {device} from its driver for virtual machines")
            try:
                self.host.poke(override, "\n")
                self.host.poke(f"{driver}/unbind", device)
            except KernelBusyError as error:
                self._wait_for_kernel(error, GPU_HELD)
                return
            except HostError as error:  # what is left is told below, and tried again
                self.teller.say(f"{device} stays with its driver for virtual machines: {error}")
                continue
            self.teller.say(f"unbound {device} from its driver for virtual machines")
        left = bound_to_vfio(self.host, switches=self.settings.switches)
        self._gone.update({*devices} - {*left})
        if left:
            self._wait(Wait.VFIO, f"waiting: {', '.join(left)} is still bound to a driver for virtual machines")
            return
        self._is_done(Wait.VFIO)

    def _leave_to_host(self, version: str) -> None:
        # Whatever else changes on the node meanwhile, this label is to be so: no version is asked for.
        body = {"metadata": {"labels": {f"{names.DEPLOY_PREFIX}driver": "pre-installed"}}}
        self.api.patch(f"/api/v1/nodes/{self.settings.node}", body)
        self.teller.say(f"the host has driver {version} of its own: none is installed beside it")
        self.sleep(LEAVING)  # meanwhile the DaemonSet's controller ends this pod
        raise DriverManagerError(f"the host has driver {version} of its own, and this pod was not ended in {LEAVING:g} s")

    def _patch_node(self, gatherer: Gatherer, *, labels: Mapping[str, str] = {}, annotations: Mapping[str, str | None] = {},
                    spec: Mapping[str, bool | None] = {}) -> None:
        # With the version of what was read, the server refuses the patch where somebody was faster.
        meta = {"resourceVersion": gatherer.resource_version, "labels": dict(labels), "annotations": dict(annotations)}
        self._in_doubt = True
        try:
            self.api.patch(f"/api/v1/nodes/{self.settings.node}", {"metadata": meta, **({"spec": dict(spec)} if spec else {})})
        except errors.ApiError as error:
            self._in_doubt = isinstance(error, PASSING)
            raise
        self._in_doubt = False

    def _give_back(self, gatherer: Gatherer) -> str:
        """Return what became of the node, nothing where there was nothing to give back."""
        until, pause = self.monotonic() + GIVING_BACK, 0.2
        while True:
            try:
                step = give_back(gatherer.of_node(), self.settings)
                if self._in_doubt and step == NOTHING:
                    # A write that has had no answer comes through no more once the node has changed.
                    self._patch_node(gatherer, annotations={names.DRIVER_MANAGER_PAUSE: gatherer.note()})
                    step = give_back(gatherer.of_node(), self.settings)
                given = self._finish(step, gatherer)
            except errors.NotFound:  # the node itself has gone
                return ""
            except Exception as error:  # also a defect must not hide why the driver manager ended
                why = str(error) if isinstance(error, errors.GpuwardError) else f"{type(error).__name__}: {error}"
                if isinstance(error, (errors.Conflict, errors.Unauthorized, *PASSING)) and self.monotonic() + pause < until:
                    self.teller.say(f"the node could not be given back yet: {why}")
                    self.sleep(pause)
                    pause = min(2 * pause, EVERY)
                    continue
                return f"the node could not be given back, the next attempt does it: {why}"
            return "the node was given back" if given else ""


def _said(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key.removeprefix(names.DEPLOY_PREFIX)}={value}" for key, value in labels.items())
