"""Containers and pods as a kubelet runs them: order, restarts with back-off, readiness, phases.

Facts from the kubelet: init containers run one after another; the first restart comes at once, later ones after 10 s,
doubled up to 5 minutes, forgotten after 10 minutes of running; a container without probes is ready while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kubesandbox.references import is_reference
from kubesandbox.sim.config import RETRY_SECONDS, missing_variable, missing_volume
from kubesandbox.sim.faults import FaultKind
from kubesandbox.sim.objects import FINISHED, Object, name_of, namespace_of, phase_of
from kubesandbox.sim.programs import Place, Program, Verdict

if TYPE_CHECKING:
    from kubesandbox.sim.machine import Machine
    from kubesandbox.sim.world import World

RESTART_SECONDS: Final = 1.0
FIRST_BACKOFF_SECONDS: Final = 10.0
LAST_BACKOFF_SECONDS: Final = 300.0
FORGIVEN_AFTER_SECONDS: Final = 600.0
NEVER: Final = float("inf")


@dataclass(slots=True)
class ContainerRun:
    """Hold one container of a pod from its first start to its last end. Instants are unix seconds."""

    spec: Object
    policy: str
    init: bool = False
    program: Program | None = None
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int | None = None
    message: str = ""
    restarts: int = 0
    crashes: int = 0
    restart_at: float | None = None
    last: tuple[float, float, int, str] | None = None
    waits: bool = False
    pull_fails: bool = False
    image_absent: bool = False
    """Whether the registry does not have its image."""
    lines: list[str] = field(default_factory=list)
    """The log of its last run, which may go on."""
    pulled_at: float | None = None
    """When its image will be there, while that is being pulled."""
    misconfigured: str = ""
    """Why its environment cannot be made."""

    @property
    def name(self) -> str:
        """Return the container's name."""
        name: str = self.spec["name"]
        return name

    @property
    def sidecar(self) -> bool:
        """Tell whether it is an init container that runs on beside the others."""
        return self.init and self.spec.get("restartPolicy") == "Always"

    @property
    def running(self) -> bool:
        """Tell whether the container's process runs."""
        return self.program is not None

    @property
    def ended(self) -> bool:
        """Tell whether the container has ended and will not be started again."""
        return self.exit_code is not None and self.restart_at is None

    @property
    def succeeded(self) -> bool:
        """Tell whether the container has ended for good, without an error."""
        return self.ended and self.exit_code == 0

    @property
    def started(self) -> bool:
        """Tell whether the container runs and its startup probe, if it has one, has succeeded."""
        return self.program is not None and (self.program.ready or not self.spec.get("startupProbe"))

    @property
    def ready(self) -> bool:
        """Tell whether the container runs and its probes succeed."""
        probed = self.spec.get("startupProbe") or self.spec.get("readinessProbe")
        return self.program is not None and (self.program.ready or not probed)

    @property
    def backing_off(self) -> bool:
        """Tell whether the container waits for its restart long enough to be called crash-looping."""
        return self.restart_at is not None and self.crashes > 1

    def advance(self, place: Place, now: float) -> float:
        """Go on as far as possible; return when to look again."""
        if self.ended:
            return NEVER
        self.waits = False
        if self.program is None:
            if self.restart_at is not None and now < self.restart_at - 1e-6:
                return self.restart_at
            image = self.spec.get("image") or ""
            if image and not is_reference(image):
                return NEVER
            self.image_absent = bool(image) and not place.world.has_image(image)
            self.pull_fails = self.image_absent or place.world.faults.hits(
                FaultKind.IMAGE_PULL, place.machine.node, name_of(place.pod), image, namespace_of(place.pod))
            if self.pull_fails:
                self.waits = True
                return NEVER
            if (there_at := self._pull(place, image, now)) > now + 1e-6:
                return there_at
            self.misconfigured = missing_variable(place.world.store, place.pod, self.spec)
            if self.misconfigured:
                return now + RETRY_SECONDS
            self._start(place, now)
        verdict = self.program.poll(now) if self.program is not None else Verdict()
        if verdict.exit_code is not None:
            self._exit(verdict, now)
            return NEVER if self.restart_at is None else self.restart_at
        self.waits = verdict.waits
        return NEVER if verdict.wake is None else verdict.wake

    def _pull(self, place: Place, image: str, now: float) -> float:
        """Return when the image is on the machine: `now` where it is there."""
        images = place.machine.images
        if image in images:
            return now
        if self.pulled_at is None:
            self.pulled_at = now + place.world.pull_seconds(image)
        if self.pulled_at <= now + 1e-6:
            images.add(image)
        return self.pulled_at

    def adopt(self, place: Place, now: float) -> None:
        """Take over a container that was already running, or had already done its work, before the sandbox."""
        place.machine.images.add(self.spec.get("image") or "")
        program = place.world.hardware.program(place, init=self.init)
        self.started_at = self.finished_at = now
        program.settle()
        if self.init:
            self.exit_code = 0
        else:
            self.program = program
            program.poll(now - FORGIVEN_AFTER_SECONDS)
            program.poll(now)

    def end(self) -> None:
        """End the container's process from outside."""
        if self.program is not None:
            self.program.end()
            self.program = None

    def _start(self, place: Place, now: float) -> None:
        if self.exit_code is not None:
            self.last = (self.started_at, self.finished_at, self.exit_code, self.message)
            self.restarts += 1
        self.started_at, self.exit_code, self.restart_at, self.message = now, None, None, ""
        self.program = place.world.hardware.program(place, init=self.init)
        self.lines = self.program.lines

    def _exit(self, verdict: Verdict, now: float) -> None:
        self.end()
        self.finished_at, self.exit_code, self.message = now, verdict.exit_code, verdict.message
        if verdict.message:
            self.lines.append(verdict.message)
        failed = bool(verdict.exit_code)
        again = failed and self.policy != "Never" if self.init else (
            self.policy == "Always" or (failed and self.policy == "OnFailure"))
        if not again:
            return
        self.crashes = 1 if now - self.started_at >= FORGIVEN_AFTER_SECONDS else self.crashes + 1
        delay = RESTART_SECONDS if self.crashes == 1 else min(
            LAST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** (self.crashes - 2))
        self.restart_at = now + delay


@dataclass(slots=True)
class PodRun:
    """Hold a pod that a kubelet runs."""

    world: World
    machine: Machine
    pod: Object
    ip: str
    accepted_at: float
    init: list[ContainerRun] = field(default_factory=list)
    main: list[ContainerRun] = field(default_factory=list)
    stop_at: float | None = None
    """When the processes will have obeyed the order to stop."""
    grace: int | None = None
    """The grace period that the pod was last told of."""
    shortened_to: float | None = None
    """When that is over, if it was shortened."""
    over: bool = False
    rejected: str = ""
    evicted: str = ""
    """Why the kubelet has ended the pod, which stays as a failed one until somebody deletes it."""
    unmounted: str = ""
    """Why a volume cannot be mounted, as long as no container was started."""

    def __post_init__(self) -> None:
        spec = self.pod["spec"]
        policy = spec.get("restartPolicy", "Always")
        self.init = [ContainerRun(container, container.get("restartPolicy") or policy, init=True)
                     for container in spec.get("initContainers") or ()]
        self.main = [ContainerRun(container, policy) for container in spec["containers"]]

    @property
    def containers(self) -> list[ContainerRun]:
        """Return all containers, init containers first."""
        return [*self.init, *self.main]

    @property
    def initialized(self) -> bool:
        """Tell whether every init container has done its part."""
        return all(map(_lets_pass, self.init))

    @property
    def has_sandbox(self) -> bool:
        """Tell whether the pod has come so far that containers were started."""
        return any(run.running or run.exit_code is not None for run in self.containers)

    @property
    def waits(self) -> bool:
        """Tell whether a change of the machine may get the pod further."""
        return not self.over and (not self.has_sandbox or any(run.waits for run in self.containers))

    @property
    def phase(self) -> str:
        """Return the pod's phase."""
        if self.rejected or self.evicted or any(run.ended and run.exit_code for run in self.init):
            return "Failed"
        if all(run.ended for run in self.main):
            return "Failed" if any(run.exit_code for run in self.main) else "Succeeded"
        return "Running" if any(run.running or run.exit_code is not None for run in self.main) else "Pending"

    def place(self, run: ContainerRun) -> Place:
        """Return where one of the containers runs."""
        return Place(self.world, self.machine, self.pod, run.spec)

    def advance(self, now: float) -> float:
        """Go on as far as possible; return when to look again."""
        if self.phase in FINISHED:
            return NEVER
        if not self.has_sandbox and (again := self._prepare(now)) is not None:
            return again
        wake = NEVER
        for run in self.init:
            if run.succeeded:
                continue
            wake = min(wake, run.advance(self.place(run), now))
            if not _lets_pass(run):
                return wake
        for run in self.main:
            wake = min(wake, run.advance(self.place(run), now))
        if self.phase in FINISHED:
            self.end()
        return wake

    def _prepare(self, now: float) -> float | None:
        """Get ready for the first container; return when to try again if that is not possible now."""
        starts_at = self.accepted_at + self.world.delays.pod_start_seconds
        if now < starts_at - 1e-6:
            return starts_at
        # Without the handler of its runtime class no sandbox can be made, and the kubelet tries again.
        if not self.machine.knows(str(self.pod["spec"].get("runtimeClassName", ""))):
            return NEVER
        if not self.machine.prepares(self.pod, self.world.store):
            return NEVER
        self.unmounted = missing_volume(self.world.store, self.pod)
        return now + RETRY_SECONDS if self.unmounted else None

    def adopt(self, now: float) -> None:
        """Take over a pod that was running before the sandbox."""
        if phase_of(self.pod) != "Running":
            return
        for run in self.containers:
            run.adopt(self.place(run), now)

    @property
    def ignores_stop(self) -> bool:
        """Tell whether a process takes no notice of the order to stop."""
        return any(run.program is not None and run.program.ignores_stop for run in self.main)

    def stop(self) -> None:
        """Pass the order to stop on to the programs."""
        for run in self.containers:
            if run.program is not None:
                run.program.stop()

    def end(self) -> None:
        """End every process of the pod."""
        for run in self.containers:
            run.end()
        self.over = True


def _lets_pass(run: ContainerRun) -> bool:
    """Tell whether an init container lets the next one start: it has succeeded, or is a sidecar that has started."""
    return run.succeeded or (run.sidecar and run.started)
