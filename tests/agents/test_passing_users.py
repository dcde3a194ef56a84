"""Programs that use a GPU for a moment, while the driver manager waits for something else."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

import pytest

from gpuward import names
from gpuward.agents.drivermanager.facts import Settings
from gpuward.agents.drivermanager.run import DriverManager
from gpuward.agents.host import DeviceUser
from gpuward.agents.machine import Machine
from gpuward.agents.telling import Teller
from tests.agents.test_driver_manager_evict import TRAIN
from tests.agents.test_driver_manager_pods import Place


@pytest.mark.parametrize("auto_drain", [True, False])
def test_who_uses_a_gpu_for_a_moment_now_and_then_is_none_who_has_not_ended(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auto_drain: bool) -> None:
    """Such as an nvidia-smi that somebody runs each minute: the second one, minutes later, had the whole node drained."""
    place = Place(tmp_path, "nvidia")
    server, now = place.server, [0.0]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    plugin = {"metadata": {"name": "plugin", "namespace": "gpu-operator", "uid": "p", "ownerReferences": [owner],
                           "labels": {"app": "nvidia-device-plugin-daemonset"}},
              "spec": {"containers": [{"name": "plugin"}]}, "status": {"phase": "Running"}}
    web = {**TRAIN, "metadata": {**TRAIN["metadata"], "name": "web", "uid": "w"}, "spec": {"containers": [{"name": "web"}]}}
    server.node["metadata"]["labels"][names.DEPLOY_PLUGIN] = "true"
    server.pods = [plugin, web]

    def users(machine: Machine, beside: Set[str] = frozenset()) -> list[DeviceUser]:
        return [DeviceUser(7, "nvidia-smi", "/dev/nvidiactl")] if now[0] == 0.0 or 299.0 < now[0] < 304.0 else []

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] >= 299.0 and plugin in server.pods:
            server.pods = [web]

    monkeypatch.setattr(Machine, "device_users", users)
    settings = Settings("gpu-1", eviction=False, auto_drain=auto_drain, digest="new")
    DriverManager(settings, place.machine, server, Teller(place.said), monotonic=lambda: now[0], sleep=sleep).uninstall()
    assert server.pods == [web], place.said.getvalue()
    assert not place.machine.modules()


def test_time_in_which_nothing_ran_counts_for_nothing(tmp_path: Path) -> None:
    """As where the machine was suspended: pods that had been evicted could not end either, and the whole node was drained."""
    place = Place(tmp_path, "nvidia")
    server, now = place.server, [0.0]
    web = {**TRAIN, "metadata": {**TRAIN["metadata"], "name": "web", "uid": "w"}, "spec": {"containers": [{"name": "web"}]}}
    train = {**TRAIN, "metadata": {**TRAIN["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    server.pods = [train, web]

    def sleep(seconds: float) -> None:
        now[0] += 3600.0 if 10.0 <= now[0] < 12.0 else seconds
        if now[0] > 3620.0:
            server.pods = [pod for pod in server.pods if pod is not train]

    DriverManager(Settings("gpu-1", timeout=60.0), place.machine, server, Teller(place.said), monotonic=lambda: now[0],
                  sleep=sleep).uninstall()
    assert server.pods == [web], place.said.getvalue()
    assert not place.machine.modules()


def test_who_was_there_before_evictions_has_its_whole_time_again_after_them(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of the host is waited for before anybody is evicted for nothing; where one comes later that does not count."""
    place = Place(tmp_path, "nvidia")
    server, now = place.server, [0.0]
    train = {**TRAIN, "metadata": {**TRAIN["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}

    def users(machine: Machine, beside: Set[str] = frozenset()) -> list[DeviceUser]:
        return [DeviceUser(7, "dcgm", "/dev/nvidiactl")] if now[0] < 290.0 or 499.0 < now[0] < 503.0 else []

    def sleep(seconds: float) -> None:
        assert now[0] >= 290.0 or not server.cordons, "nobody goes for a driver that stays"
        now[0] += seconds
        server.pods = [train if server.cordons else TRAIN] if now[0] < 500.0 else []

    server.pods = [TRAIN]
    monkeypatch.setattr(Machine, "device_users", users)
    DriverManager(Settings("gpu-1", auto_drain=False), place.machine, server, Teller(place.said), monotonic=lambda: now[0],
                  sleep=sleep).uninstall()
    assert now[0] > 500.0, place.said.getvalue()
    assert not place.machine.modules()
