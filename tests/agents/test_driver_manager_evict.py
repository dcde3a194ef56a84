"""Evictions that do not come through at once: the pod is asked again, and the node is not given back in between."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from gpuward import errors
from gpuward.agents.drivermanager.facts import Settings
from gpuward.agents.drivermanager.run import DriverManager, DriverManagerError
from gpuward.agents.machine import Machine
from gpuward.agents.telling import Teller
from kubesandbox import builders

TRAIN: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": "train", "namespace": "default", "uid": "u1",
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u0", "controller": True}]},
    "spec": {"nodeName": "gpu-1", "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    "status": {"phase": "Running"}}


@dataclass
class Server:
    """Answer as an API server does whose first answers to evictions are failures."""

    failures: list[Exception]
    node: dict[str, Any] = field(default_factory=lambda: builders.linux_node("gpu-1"))
    pods: list[dict[str, Any]] = field(default_factory=lambda: [TRAIN])
    cordons: list[bool] = field(default_factory=list)

    def get(self, path: str) -> dict[str, Any]:
        return self.node

    def list(self, path: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        return self.pods

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/eviction"):
            if self.failures:
                raise self.failures.pop()
            self.pods = []
        return body

    def patch(self, path: str, body: Any, kind: str = "") -> dict[str, Any]:
        self.node["metadata"]["labels"] |= body["metadata"].get("labels") or {}
        if "spec" in body:
            self.cordons.append(bool(body["spec"]["unschedulable"]))
            self.node["spec"]["unschedulable"] = self.cordons[-1]
            self.node["metadata"]["annotations"] = {
                key: value for key, value in body["metadata"]["annotations"].items() if value is not None}
        return self.node

    def delete(self, path: str, body: dict[str, Any] | None = None) -> None:
        raise AssertionError(path)

    def within(self, seconds: float) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.mark.parametrize("failure", [
    errors.TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget."),
    errors.Unreachable("https://10.96.0.1: Connection reset by peer"), errors.ServerError("etcdserver: leader changed"),
    errors.Forbidden("namespace a is being terminated"), errors.BadRequest("bad"), errors.Unauthorized("who?"),
    errors.Gone("too old"), errors.Invalid("invalid"), errors.Conflict("another uid"),
    errors.NotFound("the server could not find the requested resource")],
    ids=lambda failure: type(failure).__name__)
def test_an_eviction_that_fails_is_asked_for_again(tmp_path: Path, failure: Exception) -> None:
    for name in ("root/run/nvidia", "sys/module/nvidia", "proc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/refcnt").write_text("0\n")
    tool = tmp_path / "rmmod"
    tool.write_text(f"#!/bin/sh\nrm -r {tmp_path}/sys/module/$2\n")
    tool.chmod(0o755)
    machine = Machine(tmp_path / "root", tmp_path / "sys", tmp_path / "proc", module_tool=str(tool))
    server, said = Server([failure]), io.StringIO()
    DriverManager(Settings("gpu-1"), machine, server, Teller(said), sleep=lambda seconds: None).uninstall()
    assert server.cordons == [True, False], said.getvalue()
    assert f"waiting: pods default/train ({failure}) to go" in said.getvalue()
    assert not (tmp_path / "sys/module/nvidia").exists()


def test_a_pod_that_may_not_be_evicted_keeps_no_other_and_is_named_with_its_refusal(tmp_path: Path) -> None:
    """A namespace that goes, or a webhook, may say no for as long as it likes: an attempt ends when its time is up."""
    for name in ("root/run/nvidia", "sys/module/nvidia", "proc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/refcnt").write_text("0\n")
    machine = Machine(tmp_path / "root", tmp_path / "sys", tmp_path / "proc")
    server, asked, clock = Server([]), [], count(0.0, 2.0)
    server.pods = [{**TRAIN, "metadata": {**TRAIN["metadata"], "name": name, "uid": name}} for name in ("held", "train")]

    def create(path: str, body: dict[str, Any]) -> dict[str, Any]:
        name = path.split("/")[-2]
        if path.endswith("/eviction"):
            asked.append(name)
            if name == "held":
                raise errors.Forbidden("admission webhook denied the request: not now")
            server.pods = [each for each in server.pods if each["metadata"]["name"] != name]
        return body

    server.create = create  # type: ignore[method-assign]
    manager = DriverManager(Settings("gpu-1", auto_drain=False, timeout=100.0), machine, server, Teller(io.StringIO()),
                            monotonic=lambda: next(clock), sleep=lambda seconds: None)
    with pytest.raises(DriverManagerError) as error:
        manager.uninstall()
    assert str(error.value) == (
        "default/held (admission webhook denied the request: not now) use GPUs and did not go in time")
    assert asked[:3] == ["held", "train", "held"]
    assert server.cordons == [True, False]


def test_who_may_evict_nobody_gives_the_node_back_soon(tmp_path: Path) -> None:
    """A server that has just started may refuse what it allows; later no pod can go, however long the node stays cordoned."""
    for name in ("root/run/nvidia", "sys/module/nvidia", "proc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/refcnt").write_text("0\n")
    machine = Machine(tmp_path / "root", tmp_path / "sys", tmp_path / "proc")
    refusal = errors.Forbidden('pods "train" is forbidden: User "system:serviceaccount:gpu-operator:nvidia-driver" cannot create '
                               'resource "pods/eviction" in API group "" in the namespace "default"')
    server, now = Server([refusal] * 100), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with pytest.raises(DriverManagerError) as error:
        DriverManager(Settings("gpu-1"), machine, server, Teller(io.StringIO()), monotonic=lambda: now[0],
                      sleep=sleep).uninstall()
    assert str(error.value) == f"pod default/train cannot be evicted: {refusal}"
    assert 10.0 <= now[0] < 30.0, "without the right it was tried for an hour"
    assert server.cordons == [True, False]


@pytest.mark.parametrize(("refusal", "most"), [
    (errors.TooManyRequests("budget"), 14), (errors.TooManyRequests("busy", details={"retryAfterSeconds": 10}), 12)],
    ids=["it says no more", "the server names a pause"])
def test_a_pod_whose_eviction_is_refused_is_asked_ever_less_often(tmp_path: Path, refusal: Exception, most: int) -> None:
    for name in ("root/run/nvidia", "sys/module/nvidia", "proc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/refcnt").write_text("0\n")
    machine = Machine(tmp_path / "root", tmp_path / "sys", tmp_path / "proc")
    server, asked, now = Server([]), [0.0][:0], [0.0]

    def create(path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/eviction"):
            asked.append(now[0])
            raise refusal
        return body

    def sleep(seconds: float) -> None:
        now[0] += seconds

    server.create = create  # type: ignore[method-assign]
    with pytest.raises(DriverManagerError, match="did not go in time"):
        DriverManager(Settings("gpu-1", auto_drain=False, timeout=120.0), machine, server, Teller(io.StringIO()),
                      monotonic=lambda: now[0], sleep=sleep).uninstall()
    pauses = [later - before for before, later in pairwise(asked)]
    assert len(asked) in range(10, most + 1), "kubectl asks every 5 s"
    assert pauses == sorted(pauses)
    assert pauses[-1] == 10.0


def test_evictions_that_take_long_end_in_time(tmp_path: Path) -> None:
    """A webhook may take its time over each pod: with many, a round of them would last much longer than all are given."""
    for name in ("root/run/nvidia", "sys/module/nvidia", "proc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/refcnt").write_text("0\n")
    machine = Machine(tmp_path / "root", tmp_path / "sys", tmp_path / "proc")
    server, now = Server([]), [0.0]
    server.pods = [{**TRAIN, "metadata": {**TRAIN["metadata"], "name": f"t{each}", "uid": f"u{each}"}} for each in range(60)]

    def create(path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/eviction"):
            now[0] += 8.0
            raise errors.ServerError("failed calling webhook: context deadline exceeded")
        return body

    def sleep(seconds: float) -> None:
        now[0] += seconds

    server.create = create  # type: ignore[method-assign]
    with pytest.raises(DriverManagerError, match="did not go in time"):
        DriverManager(Settings("gpu-1", auto_drain=False, timeout=60.0), machine, server, Teller(io.StringIO()),
                      monotonic=lambda: now[0], sleep=sleep).uninstall()
    assert now[0] < 60.0 + 8.0 + 10.0
    assert server.cordons == [True, False]


class Scheduled(Server):
    """Be a cluster whose controller makes a pod anew, on this node as long as that takes pods."""

    evictions = 0

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/eviction"):
            self.evictions += 1
            anew = {**TRAIN, "metadata": {**TRAIN["metadata"], "name": f"train-{self.evictions}", "uid": f"u-{self.evictions}"}}
            self.pods = [] if self.node["spec"].get("unschedulable") else [anew]
        return body


@pytest.mark.parametrize("eviction", [True, False], ids=["by evictions", "by a drain alone"])
def test_no_pod_comes_again_to_a_node_that_is_emptied(tmp_path: Path, eviction: bool) -> None:
    for name in ("root/run/nvidia", "sys/module/nvidia", "proc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/refcnt").write_text("0\n")
    tool = tmp_path / "rmmod"
    tool.write_text(f"#!/bin/sh\nrm -r {tmp_path}/sys/module/$2\n")
    tool.chmod(0o755)
    machine = Machine(tmp_path / "root", tmp_path / "sys", tmp_path / "proc", module_tool=str(tool))
    server, said, clock = Scheduled([]), io.StringIO(), count(0.0, 10.0)
    DriverManager(Settings("gpu-1", eviction=eviction), machine, server, Teller(said),
                  monotonic=lambda: next(clock), sleep=lambda seconds: None).uninstall()
    assert server.evictions == 1, said.getvalue()
    assert server.cordons == [True, False]
    assert not (tmp_path / "sys/module/nvidia").exists()


class Gone(Server):
    """Be a cluster from which the node is deleted while its pods are looked at."""

    def get(self, path: str) -> dict[str, Any]:
        if self.failures:
            raise self.failures[0]
        return super().get(path)

    def list(self, path: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        self.failures = [errors.NotFound('nodes "gpu-1" not found')]
        return super().list(path)


def test_nobody_is_told_that_a_node_will_be_given_back_that_has_gone(tmp_path: Path) -> None:
    for name in ("root/run/nvidia", "sys/module/nvidia", "proc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/refcnt").write_text("0\n")
    machine, clock = Machine(tmp_path / "root", tmp_path / "sys", tmp_path / "proc"), count(0.0, 10.0)
    with pytest.raises(errors.NotFound) as error:
        DriverManager(Settings("gpu-1"), machine, Gone([]), Teller(io.StringIO()),
                      monotonic=lambda: next(clock), sleep=lambda seconds: None).uninstall()
    assert str(error.value) == 'nodes "gpu-1" not found'
    assert not getattr(error.value, "__notes__", [])


@pytest.mark.parametrize("name", ["train-0", "train-7d9f-"], ids=["of a StatefulSet", "of a Deployment"])
def test_pods_that_come_again_and_again_are_evicted_ever_less_often_and_named(tmp_path: Path, name: str) -> None:
    """Such as those that name this node, or stand its cordon: 1800 were made and ended in an hour."""
    for folder in ("root/run/nvidia", "sys/module/nvidia", "proc"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/refcnt").write_text("0\n")
    machine = Machine(tmp_path / "root", tmp_path / "sys", tmp_path / "proc")
    server, said, now, numbers = Server([]), io.StringIO(), [0.0], count()

    def anew() -> dict[str, Any]:
        number = next(numbers)
        return {**TRAIN, "metadata": {
            **TRAIN["metadata"], "name": f"{name}{number}" if name.endswith("-") else name, "uid": f"u-{number}"}}

    def create(path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/eviction"):
            evicted = path.split("/")[-2]
            server.pods = [*(each for each in server.pods if each["metadata"]["name"] != evicted), anew()]
        return body

    def sleep(seconds: float) -> None:
        now[0] += seconds

    server.create, server.pods = create, [anew()]  # type: ignore[method-assign]
    with pytest.raises(DriverManagerError, match="did not go in time"):
        DriverManager(Settings("gpu-1", auto_drain=False), machine, server, Teller(said),
                      monotonic=lambda: now[0], sleep=sleep).uninstall()
    assert 20 < next(numbers) < 100
    assert "came again after evictions" in said.getvalue()
    assert server.cordons == [True, False]


def test_pods_that_are_there_when_the_drain_begins_are_not_taken_for_ones_that_come_again(tmp_path: Path) -> None:
    """The pod with the GPU was asked before: where a budget lets the others go one by one, each was asked later than the last."""
    for folder in ("root/run/nvidia", "sys/module/nvidia", "proc"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/refcnt").write_text("0\n")
    tool = tmp_path / "rmmod"
    tool.write_text(f"#!/bin/sh\nrm -r {tmp_path}/sys/module/$2\n")
    tool.chmod(0o755)
    machine = Machine(tmp_path / "root", tmp_path / "sys", tmp_path / "proc", module_tool=str(tool))
    server, said, now, last = Server([]), io.StringIO(), [0.0], [0.0]
    web = [{**TRAIN, "metadata": {**TRAIN["metadata"], "name": f"web-7d9f-{number}", "uid": f"w-{number}"},
            "spec": {"nodeName": "gpu-1", "containers": [{"name": "web"}]}} for number in range(8)]

    def create(path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/eviction"):
            name = path.split("/")[-2]
            if name == "train" and now[0] < 110.0:
                raise errors.Forbidden("not now")
            if name != "train":
                if now[0] < last[0] + 3.0:
                    raise errors.TooManyRequests("budget")
                last[0] = now[0]
            server.pods = [each for each in server.pods if each["metadata"]["name"] != name]
        return body

    def sleep(seconds: float) -> None:
        now[0] += seconds

    server.create, server.pods = create, [TRAIN, *web]  # type: ignore[method-assign]
    DriverManager(Settings("gpu-1", timeout=100.0), machine, server, Teller(said),
                  monotonic=lambda: now[0], sleep=sleep).uninstall()
    assert "came again" not in said.getvalue()
    assert server.cordons == [True, False]
