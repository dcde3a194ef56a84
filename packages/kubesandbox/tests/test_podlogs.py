from __future__ import annotations

import asyncio

import pytest

from kubesandbox.messages import Request, Stream
from kubesandbox.timeloop import VirtualLoop
from sandbox_helpers.calls import Caller

LOG = "/api/v1/namespaces/default/pods/p/log"


def state(caller: Caller, **state: object) -> None:
    caller.store.patch_status("pods", "default", "p", lambda pod: pod["status"].update(
        containerStatuses=[{"name": "c", "state": state}]))


def test_a_registered_log_is_served_in_whole_or_its_tail() -> None:
    caller = Caller()
    caller.pod()
    caller.api.log_sources["default", "p"] = lambda: "one\ntwo\nthree\n"
    assert caller.send("GET", LOG).body == b"one\ntwo\nthree\n"
    assert caller.send("GET", LOG, tailLines=2).body == b"two\nthree\n"
    assert caller.send("GET", LOG, tailLines=0).body == b""


def test_other_pods_have_what_the_simulation_says() -> None:
    caller = Caller()
    caller.pod()
    state(caller, running={})
    assert caller.send("GET", LOG).body == b""
    caller.api.logs.otherwise = lambda pod, container: f"{container} of {pod['metadata']['name']} began\n"
    assert caller.send("GET", LOG).body == b"c of p began\n"


@pytest.mark.parametrize(("container", "message"), [
    ("z", "container z is not valid for pod p"), (None, "a container name must be specified for pod p, choose one of: [c d]"),
])
def test_unclear_containers(container: str | None, message: str) -> None:
    caller = Caller()
    caller.pod(spec={"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]})
    assert caller.refused("GET", LOG, container=container) == (400, "BadRequest", message)


def test_a_container_that_waits_has_no_log() -> None:
    caller = Caller()
    caller.pod()
    state(caller, waiting={"reason": "ContainerCreating"})
    assert caller.refused("GET", LOG)[2] == 'container "c" in pod "p" is waiting to start: ContainerCreating'
    assert caller.refused("GET", LOG.replace("/p/", "/q/"))[0] == 404


def test_a_container_that_waits_for_its_restart_has_the_log_of_its_last_run() -> None:
    caller = Caller()
    caller.pod()
    caller.api.logs.otherwise = lambda pod, container: "began\n"
    caller.store.patch_status("pods", "default", "p", lambda pod: pod["status"].update(containerStatuses=[{
        "name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}]))
    assert caller.send("GET", LOG).body == b"began\n"
    assert caller.send("GET", LOG, previous="true").body == b"began\n"


def test_a_container_that_runs_for_the_first_time_has_no_previous_log() -> None:
    caller = Caller()
    caller.pod()
    state(caller, running={})
    assert caller.refused("GET", LOG, previous="true") == (
        400, "BadRequest", 'previous terminated container "c" in pod "p" not found')


def test_following_ends_with_the_pod() -> None:
    async def story() -> list[bytes]:
        caller = Caller()
        caller.pod()
        text = ["one\n"]
        caller.api.log_sources["default", "p"] = lambda: "".join(text)
        stream = caller.api.handle(Request("GET", LOG, {"follow": "true"}))
        assert isinstance(stream, Stream)
        asyncio.get_running_loop().call_later(1, lambda: text.append("two\n"))
        asyncio.get_running_loop().call_later(2, lambda: caller.store.remove("pods", "default", "p"))
        return [chunk async for chunk in stream.chunks()]

    loop = VirtualLoop()
    try:
        assert loop.run_until_complete(story()) == [b"one\n", b"two\n"]
    finally:
        loop.close()


@pytest.mark.parametrize(("subresource", "what"), [
    ("exec", "run commands in"), ("attach", "attach to"), ("portforward", "forward ports to"),
    ("ephemeralcontainers", "add others to"),
])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_needs_a_container_is_refused_in_words(method: str, subresource: str, what: str) -> None:
    caller = Caller()
    caller.pod()
    path = f"/api/v1/namespaces/default/pods/p/{subresource}"
    assert caller.refused(method, path) == (
        405, "MethodNotAllowed", f"the sandbox has no containers to {what}: its pods are simulated")
    assert caller.refused(method, path.replace("/p/", "/q/"))[:2] == (404, "NotFound")
