"""The Job controller: runs pods until enough of them have succeeded, or too many have failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kubesandbox.sim.controllers.podmaking import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, PodMaker
from kubesandbox.sim.objects import (
    Object,
    controller_uid,
    is_active,
    is_ready,
    is_terminating,
    is_true,
    name_of,
    namespace_of,
    owned_by,
    phase_of,
    stamp,
    uid_of,
)
from kubesandbox.sim.recorder import Recorder
from kubesandbox.store import copy

if TYPE_CHECKING:
    from kubesandbox.errors import ApiError
    from kubesandbox.sim.world import World
    from kubesandbox.store import Event

QUEUE: Final = "job"
JOBS: Final = "jobs.batch"
FIRST_BACKOFF_SECONDS: Final = 10.0
LAST_BACKOFF_SECONDS: Final = 600.0
INDEX: Final = "batch.kubernetes.io/job-completion-index"
INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
LONGEST_HOSTNAME: Final = 63


@dataclass(slots=True)
class _Tally:
    """Count the pods of a Job that have ended, each once, also when they are gone by now."""

    key: tuple[str, str]
    succeeded: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    completed: set[int] = field(default_factory=set)
    """Of an Indexed Job, the indexes of pods that have succeeded."""
    next_start: float = 0.0


class JobController:
    """Keep every Job's pods and status as its spec wants them.

    Pods that are deleted or evicted before they end count as failed, as they do for Kubernetes, and are replaced.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._tallies: dict[str, _Tally] = {}
        world.queue.register(QUEUE, self.sync, (FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS))
        self._maker = PodMaker(world.store, Recorder(world, "job-controller", JOBS))
        world.store.subscribe(self._job_changed, JOBS)
        world.store.subscribe(self._pod_changed, "pods")
        for job in world.store.list(JOBS):
            self._know(job)
        for pod in world.store.list("pods"):
            self._count(pod, gone=False)

    def _know(self, job: Object) -> None:
        self._tallies.setdefault(uid_of(job), _Tally((namespace_of(job), name_of(job))))
        self._world.queue.add(QUEUE, uid_of(job))

    def _job_changed(self, event: Event) -> None:
        if event.type == "DELETED":
            self._tallies.pop(uid_of(event.obj), None)
        else:
            self._know(event.obj)

    def _pod_changed(self, event: Event) -> None:
        if controller_uid(event.obj) in self._tallies:
            self._count(event.obj, gone=event.type == "DELETED")
            self._world.queue.add(QUEUE, controller_uid(event.obj))

    def _count(self, pod: Object, *, gone: bool) -> None:
        tally = self._tallies.get(controller_uid(pod))
        if tally is None:
            return
        uid = uid_of(pod)
        if phase_of(pod) == "Succeeded":
            tally.succeeded.add(uid)
            if (index := _index(pod)) is not None:
                tally.completed.add(index)
        elif (gone or phase_of(pod) == "Failed") and uid not in tally.failed:
            tally.failed.add(uid)
            delay = min(LAST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** (len(tally.failed) - 1))
            tally.next_start = self._world.now() + delay

    def sync(self, uid: str) -> None:
        """Start the pods that one Job still needs, or end it, and tell its status."""
        tally = self._tallies.get(uid)
        if tally is None:
            return
        job = self._world.store.get(JOBS, *tally.key)
        if is_terminating(job) or is_true(job, "Complete") or is_true(job, "Failed"):
            return
        active = [pod for pod in self._world.pods.of(uid) if is_active(pod)]
        verdict = self._verdict(job, tally, active)
        if verdict == "Failed":
            for pod in active:
                self._world.store.delete("pods", namespace_of(pod), name_of(pod))
            active = []
        refused = None
        if not verdict and not job["spec"].get("suspend"):
            refused = self._start(job, tally, active)
            active = [pod for pod in self._world.pods.of(uid) if is_active(pod)]
        self._tell(job, tally, active, verdict)
        if refused is not None:
            raise refused

    def _verdict(self, job: Object, tally: _Tally, active: list[Object]) -> str:
        if len(tally.failed) > job["spec"].get("backoffLimit", 6):
            return "Failed"
        wanted = job["spec"].get("completions")
        enough = _completed(job, tally) >= wanted if wanted is not None else bool(tally.succeeded) and not active
        return "Complete" if enough else ""

    def _start(self, job: Object, tally: _Tally, active: list[Object]) -> ApiError | None:
        now, spec = self._world.now(), job["spec"]
        parallel, wanted = spec.get("parallelism", 1), spec.get("completions")
        if wanted is None and tally.succeeded:
            return None
        lacking = min(parallel, wanted - _completed(job, tally) if wanted is not None else parallel) - len(active)
        if lacking > 0 and now < tally.next_start:
            self._world.queue.add_at(QUEUE, uid_of(job), tally.next_start)
            return None
        indexes: list[int | None] = [None] * lacking
        if _is_indexed(job):
            taken = tally.completed.union(index for pod in active if (index := _index(pod)) is not None)
            indexes = [*islice((index for index in range(wanted or 0) if index not in taken), max(0, lacking))]
        return self._maker.make(job, [partial(self._pod, job, index) for index in indexes])[1]

    def _pod(self, job: Object, index: int | None) -> Object:
        template = job["spec"]["template"]
        numbered = {} if index is None else {INDEX: str(index)}
        name = name_of(job) if index is None else f"{name_of(job)}-{index}"
        names = {"batch.kubernetes.io/job-name": name_of(job), "batch.kubernetes.io/controller-uid": uid_of(job),
                 "job-name": name_of(job), "controller-uid": uid_of(job)}
        meta = template.get("metadata") or {}
        return {
            "metadata": {
                "generateName": f"{name}-", "namespace": namespace_of(job),
                "labels": {**(meta.get("labels") or {}), **names, **numbered},
                "annotations": {**(meta.get("annotations") or {}), **numbered},
                "ownerReferences": [owned_by(job, self._world.store.resource(JOBS))]},
            "spec": template["spec"] if index is None else _as_indexed(template["spec"], name, index)}

    def _tell(self, job: Object, tally: _Tally, active: list[Object], verdict: str) -> None:
        now = stamp(self._world.now())
        old = job.get("status") or {}
        status: dict[str, Any] = {"startTime": old.get("startTime", now), "ready": sum(map(is_ready, active)),
                                  "terminating": sum(map(is_terminating, self._world.pods.of(uid_of(job)))),
                                  "uncountedTerminatedPods": {}}
        counted = {"active": len(active), "succeeded": len(tally.succeeded), "failed": len(tally.failed)}
        status.update({key: value for key, value in counted.items() if value})
        if tally.completed:
            status["completedIndexes"] = _ranges(tally.completed)
        if verdict:
            reason = "CompletionsReached" if verdict == "Complete" else "BackoffLimitExceeded"
            met = "SuccessCriteriaMet" if verdict == "Complete" else "FailureTarget"
            message = ("Reached expected number of succeeded pods" if verdict == "Complete"
                       else "Job has reached the specified backoff limit")
            status["conditions"] = [
                {"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now, "reason": reason,
                 "message": message} for kind in (met, verdict)]
            if verdict == "Complete":
                status["completionTime"] = now
        if status != old:
            self._world.store.patch_status(JOBS, *tally.key, lambda obj: obj.update(status=copy(status)))


def _is_indexed(job: Object) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def _index(pod: Object) -> int | None:
    said = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(said) if said.isdecimal() else None


def _completed(job: Object, tally: _Tally) -> int:
    return len(tally.completed) if _is_indexed(job) else len(tally.succeeded)


def _as_indexed(spec: Object, name: str, index: int) -> Object:
    """Return a pod's spec with the name of its host and, in every container, its index, as Kubernetes gives them."""
    spec = copy(spec)
    if len(name) <= LONGEST_HOSTNAME:
        spec.setdefault("hostname", name)
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        env = container.setdefault("env", [])
        if not any(one.get("name") == INDEX_VARIABLE for one in env):
            env.append({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}})
    return spec


def _ranges(indexes: set[int]) -> str:
    """Return numbers as Kubernetes writes them: `0,1,3-5`."""
    spans: list[list[int]] = []
    for index in sorted(indexes):
        if spans and index == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], index]
        else:
            spans.append([index])
    return ",".join(("," if span[-1] - span[0] == 1 else "-").join(map(str, span)) for span in spans)
