"""An API server that refuses, loses answers, and shows the past."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuward import errors
from kubesandbox import messages
from kubesandbox.messages import Answer, Request, Stream
from tools.simulate.faults.kinds import LED, End, kind

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import SimulatedWorld

Proceed = Callable[[], Answer | Stream]
Trouble = Callable[[Request, Proceed], Answer | Stream]

SHORT = (1.0, 60.0)
WATCHED = ("nodes", "pods", "daemonsets.apps", "controllerrevisions.apps", "clusterpolicies.nvidia.com",
           "poddisruptionbudgets.policy", "rolloutpolicies.gpuward.io", "resourceclaims.resource.k8s.io")


def _disturb(world: SimulatedWorld, fault: Fault, trouble: Trouble) -> End:
    """Make trouble for a share of all requests but watches, until the end."""
    random = world.scenario.random(f"{fault.at}/{fault.kind}")
    share = 0.05 + 0.9 * fault.level ** 2

    def sometimes(request: Request, proceed: Proceed) -> Answer | Stream:
        return trouble(request, proceed) if random.random() < share else proceed()

    world.troubles.append(sometimes)
    return lambda: world.troubles.remove(sometimes)


def _refuse(error: errors.ApiError) -> Trouble:
    return lambda request, proceed: messages.refusal(error)


@kind("api-conflict", weight=2, lasts=SHORT)
def conflict(world: SimulatedWorld, fault: Fault) -> End:
    """Answer with 409, whatever is asked."""
    return _disturb(world, fault, _refuse(errors.Conflict("the object has been modified")))


@kind("api-too-many", weight=2, lasts=SHORT)
def too_many(world: SimulatedWorld, fault: Fault) -> End:
    """Answer with 429 and how long to wait."""
    details = {"retryAfterSeconds": 1 + int(9 * fault.pick)}
    return _disturb(world, fault, _refuse(errors.TooManyRequests("too many requests", details=details)))


@kind("api-error", weight=2, lasts=SHORT)
def server_error(world: SimulatedWorld, fault: Fault) -> End:
    """Answer with 500 without having done anything."""
    return _disturb(world, fault, _refuse(errors.ServerError("etcd has no leader")))


@kind("api-unavailable", weight=2, lasts=SHORT)
def unavailable(world: SimulatedWorld, fault: Fault) -> End:
    """Answer with 503."""
    return _disturb(world, fault, _refuse(errors.ServerError("shutting down", status=503, reason="ServiceUnavailable")))


@kind("api-error-after", weight=2, lasts=SHORT)
def error_after(world: SimulatedWorld, fault: Fault) -> End:
    """Do what was asked for, and answer with 504 all the same, as a server does whose own deadline is over."""

    def trouble(request: Request, proceed: Proceed) -> Answer | Stream:
        proceed()
        return messages.refusal(errors.ServerError("request did not complete within the allotted timeout", status=504,
                                                   reason="Timeout"))
    return _disturb(world, fault, trouble)


@kind("api-unreachable", weight=2, lasts=SHORT)
def unreachable(world: SimulatedWorld, fault: Fault) -> End:
    """Refuse connections."""

    def trouble(request: Request, proceed: Proceed) -> Answer | Stream:
        raise errors.Unreachable("connection refused")

    return _disturb(world, fault, trouble)


@kind("api-answer-lost", weight=4, lasts=SHORT)
def answer_lost(world: SimulatedWorld, fault: Fault) -> End:
    """Do what was asked for, and lose the answer."""

    def trouble(request: Request, proceed: Proceed) -> Answer | Stream:
        proceed()
        raise errors.Unreachable("connection reset")

    return _disturb(world, fault, trouble)


@kind("api-slow", weight=1, lasts=SHORT)
def slow(world: SimulatedWorld, fault: Fault) -> End:
    """Take seconds for every answer."""
    world.latency = 0.2 + 5.0 * fault.level
    return world.usual_latency


@kind("api-timeout", weight=1, lasts=(10.0, 90.0))
def timeout(world: SimulatedWorld, fault: Fault) -> End:
    """Take longer for every answer than the operator waits: half the time the server acts before that."""
    world.latency = 40.0 + 40.0 * fault.level
    return world.usual_latency


@kind("watch-broken", weight=3)
def watch_broken(world: SimulatedWorld, fault: Fault) -> None:
    """Cut every open watch."""
    world.break_watches()


@kind("watch-gone", weight=2)
def watch_gone(world: SimulatedWorld, fault: Fault) -> None:
    """Forget the history, so that watches that are cut must list again."""
    world.sandbox.store.compact(world.sandbox.store.version)
    world.break_watches()


@kind("watch-late", weight=4, lasts=(5.0, 120.0))
def watch_late(world: SimulatedWorld, fault: Fault) -> End:
    """Let one resource's watch lag behind by seconds: a stale cache, and out of order with the other watches."""
    resource = WATCHED[int(fault.pick * len(WATCHED))]
    world.lags[resource] = 0.5 + 20.0 * fault.level
    return lambda: world.usual_lag(resource)


@kind("watch-silent", weight=2, lasts=(60.0, 400.0))
def watch_silent(world: SimulatedWorld, fault: Fault) -> End:
    """Let one resource's watch say nothing at all for longer than a connection may be silent."""
    resource = WATCHED[int(fault.pick * len(WATCHED))]
    world.lags[resource] = 1000.0
    return lambda: world.usual_lag(resource)


@kind("watches-out-of-order", weight=2, lasts=(5.0, 120.0))
def out_of_order(world: SimulatedWorld, fault: Fault) -> End:
    """Give each resource's watch a lag of its own."""
    random = world.scenario.random(f"{fault.at}/{fault.kind}")
    for resource in WATCHED:
        world.lags[resource] = random.uniform(0.0, 5.0)

    def end() -> None:
        for resource in WATCHED:
            world.usual_lag(resource)

    return end


@kind("api-keeps-driver-pods", lasts=(60.0, 200.0), stream=LED)
def keeps_driver_pods(world: SimulatedWorld, fault: Fault) -> End:
    """Refuse that driver pods are deleted, as an admission webhook may."""

    def trouble(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.method != "DELETE" or "/pods/nvidia-" not in request.path or "driver" not in request.path:
            return proceed()
        return messages.refusal(errors.Forbidden("admission webhook denied the request: driver pods stay"))

    world.troubles.append(trouble)
    return lambda: world.troubles.remove(trouble)
