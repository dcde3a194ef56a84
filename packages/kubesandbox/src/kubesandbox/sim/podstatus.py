"""The status that a kubelet reports for a pod, complete enough for kubectl and for readiness logic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubesandbox.references import is_reference
from kubesandbox.sim.objects import FINISHED, stamp

if TYPE_CHECKING:
    from kubesandbox.sim.containers import ContainerRun, PodRun
    from kubesandbox.sim.objects import Object

OWN_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def pod_status(run: PodRun, old: Object, host_ip: str, now: float) -> Object:
    """Return the status of a running pod; `old` is what was reported before."""
    phase = run.phase
    status: Object = {"phase": phase, "qosClass": old.get("qosClass", "BestEffort"),
                      "startTime": stamp(run.accepted_at), "hostIP": host_ip, "hostIPs": [{"ip": host_ip}]}
    if run.evicted:
        return {**status, "reason": "Evicted", "message": run.evicted, "conditions": _conditions(run, old, phase, now)}
    if run.rejected:
        reason, _, message = run.rejected.partition(": ")
        return {**status, "reason": reason, "message": f"Pod was rejected: {message}",
                "conditions": _conditions(run, old, phase, now)}
    if run.has_sandbox:
        status["podIP"] = host_ip if run.pod["spec"].get("hostNetwork") else run.ip
        status["podIPs"] = [{"ip": status["podIP"]}]
    status["conditions"] = _conditions(run, old, phase, now)
    if run.init:
        status["initContainerStatuses"] = [_container(found, run, now) for found in run.init]
    status["containerStatuses"] = [_container(found, run, now) for found in run.main]
    return status


def _conditions(run: PodRun, old: Object, phase: str, now: float) -> list[Object]:
    known = {found["type"]: found for found in old.get("conditions") or ()}
    sleepy = [found.name for found in run.main if not found.ready]
    lazy = [found.name for found in run.init if not (found.succeeded or found.started)]
    if phase in FINISHED:
        reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        unready = {"reason": reason}
        uninitialized = {"reason": reason} if lazy else {}
    else:
        unready = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{' '.join(sleepy)}]"}
        uninitialized = {"reason": "ContainersNotInitialized",
                         "message": f"containers with incomplete status: [{' '.join(lazy)}]"}
    ready = phase == "Running" and run.initialized and not sleepy
    facts = (run.has_sandbox and not run.over, run.initialized, ready, ready, True)
    excuses: tuple[Object, ...] = ({}, uninitialized, unready, unready, {})
    own = [_condition(kind, holds, {} if holds else excuse, known.get(kind), now)
           for kind, holds, excuse in zip(OWN_CONDITIONS, facts, excuses, strict=True)]
    return own + [found for kind, found in known.items() if kind not in OWN_CONDITIONS]


def _condition(kind: str, holds: bool, excuse: Object, old: Object | None, now: float) -> Object:
    state = str(holds)
    since = old["lastTransitionTime"] if old is not None and old.get("status") == state and old.get(
        "lastTransitionTime") else stamp(now)
    return {"type": kind, "status": state, "lastProbeTime": None, "lastTransitionTime": since, **excuse}


def _container(found: ContainerRun, run: PodRun, now: float) -> Object:
    image = found.spec.get("image", "")
    ran = found.running or found.exit_code is not None
    status: Object = {
        "name": found.name, "image": image, "imageID": image if ran else "", "restartCount": found.restarts,
        "ready": found.ready if not found.init or (found.running and found.sidecar) else found.succeeded,
        "started": found.started, "state": _state(found, run, now), "lastState": {}}
    if ran:
        status["containerID"] = f"containerd://{run.pod['metadata']['uid']}-{found.name}-{found.restarts}"
    if found.last is not None:
        started, finished, code, message = found.last
        status["lastState"] = {"terminated": _terminated(started, finished, code, message)}
    if found.backing_off and found.exit_code is not None:
        status["lastState"] = {
            "terminated": _terminated(found.started_at, found.finished_at, found.exit_code, found.message)}
    return status


def _state(found: ContainerRun, run: PodRun, now: float) -> Object:
    if found.running:
        return {"running": {"startedAt": stamp(found.started_at)}}
    image = found.spec.get("image", "")
    if image and not is_reference(image):
        return {"waiting": {"reason": "InvalidImageName", "message":
                f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": invalid reference format'}}
    if found.misconfigured:
        return {"waiting": {"reason": "CreateContainerConfigError", "message": found.misconfigured}}
    if found.backing_off and found.restart_at is not None:
        wait = round(found.restart_at - found.finished_at)
        meta = run.pod["metadata"]
        return {"waiting": {"reason": "CrashLoopBackOff", "message":
                f"back-off {wait}s restarting failed container={found.name} "
                f"pod={meta['name']}_{meta['namespace']}({meta['uid']})"}}
    if found.exit_code is not None:
        return {"terminated": _terminated(found.started_at, found.finished_at, found.exit_code, found.message)}
    if found.pull_fails:
        why = (f': ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image "{image}": '
               f'failed to resolve reference "{image}": {image}: not found') if found.image_absent else ""
        return {"waiting": {"reason": "ImagePullBackOff",
                            "message": f'Back-off pulling image "{image}"{why}'}}
    return {"waiting": {"reason": "PodInitializing" if run.init else "ContainerCreating"}}


def _terminated(started: float, finished: float, code: int, message: str) -> Object:
    told: Object = {"exitCode": code, "reason": "Completed" if code == 0 else "Error",
                    "startedAt": stamp(started), "finishedAt": stamp(finished)}
    if message:
        told["message"] = message
    return told


def complaints(new: Object, old: Object) -> list[tuple[str, str]]:
    """Return what a kubelet warns of when a pod's status becomes `new`: reason and message of each event."""
    if new.get("reason") and new.get("reason") != old.get("reason"):
        return [(new["reason"], new["message"])]
    before = {status["name"]: status["state"] for status in _statuses(old)}
    found = []
    for status in _statuses(new):
        waiting = status["state"].get("waiting") or {}
        if waiting.get("message") and status["state"] != before.get(status["name"]):
            reason = "BackOff" if waiting["reason"] == "CrashLoopBackOff" else "Failed"
            found.append((reason, waiting["message"]))
    return found


def _statuses(status: Object) -> list[Object]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
