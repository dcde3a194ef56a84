"""Waves, checks, windows and the verbs about a rollout, on a real Kubernetes API and with a real Prometheus."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuward import names
from gpuward.model.record import Record, decode_record
from tests.controlplane.few import few_nodes, reasons, rollout_policy, start_rollout
from tests.controlplane.plane import NodeWatch, Plane, Sight, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.xdist_group("few nodes")]

NODES = 3
CANARY, LATER = "gpu-1", ("gpu-2", "gpu-3")
WAVE = {"name": "canary", "nodes": 1}
VERSIONS = (f"580.{number}.01" for number in range(10, 99))


@pytest.fixture(scope="module")
def plane(wanted: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Keep a small control plane running, apart from the fleet of the other tests."""
    with few_nodes(tmp_path_factory.mktemp("foresight") / "run", nodes=NODES) as plane:
        yield plane


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Keep a Prometheus running that scrapes nothing; yield its address."""
    if shutil.which("prometheus") is None:
        assert not os.environ.get("CI"), "prometheus is not installed"
        pytest.skip("prometheus is not installed")
    folder = tmp_path_factory.mktemp("prometheus")
    with socket.create_server(("127.0.0.1", 0)) as found:
        address = f"127.0.0.1:{found.getsockname()[1]}"
    (folder / "p.yml").write_text("scrape_configs: []\n")
    running = subprocess.Popen(["prometheus", f"--config.file={folder / 'p.yml'}", f"--storage.tsdb.path={folder / 'data'}",
                                f"--web.listen-address={address}", "--log.level=error"])
    try:
        yield f"http://{address}"
    finally:
        running.kill()
        running.wait(10)


def record(plane: Plane, node: str) -> Record:
    """Return what gpuward remembers about a node's upgrade."""
    return decode_record(plane.get("node", node)["metadata"]["annotations"][names.UPGRADE_RECORD])


def begin(plane: Plane, **settings: Any) -> str:
    """Ask for another driver under these settings, and return its version."""
    rollout_policy(plane, **settings)
    version = next(VERSIONS)
    start_rollout(plane, version)
    return version


def is_done(sight: Sight) -> bool:
    return sight.state == "upgrade-done"


def canary_is_done(watch: NodeWatch) -> None:
    """Wait until the first node has been upgraded while the others wait for it."""
    watch.wait_for("the canary is under way", lambda now: not is_done(now[CANARY]))
    watch.wait_for("the canary is done", lambda now: is_done(now[CANARY]) and all(
        now[name].state == "upgrade-required" for name in LATER))


def all_are_done(watch: NodeWatch) -> None:
    watch.wait_for("all are done", lambda now: all(map(is_done, now.values())))


def waiting_for(plane: Plane, reason: str) -> None:
    """Wait until later nodes are held by this reason."""
    eventually(reason, lambda: reasons(plane) == dict.fromkeys(LATER, reason))


def nobody_began(watch: NodeWatch) -> bool:
    """Tell whether no node of a later wave has been under way, or taken out of service, so far."""
    return all(moment[name].state in ("upgrade-done", "upgrade-required") and not moment[name].unschedulable
               for moment in watch.moments for name in LATER)


def rollout_status(plane: Plane) -> str:
    """Return what the policy's condition says."""
    conditions = plane.get("clusterpolicy", "cluster-policy")["status"]["conditions"]
    return str(next(each["message"] for each in conditions if each["type"] == "DriverUpgrade"))


def test_a_wave_soaks_and_waits_for_approval(installed: Plane, watch: NodeWatch) -> None:
    begin(installed, waves=[{**WAVE, "soak": "15s", "approval": "Required"}])
    canary_is_done(watch)
    since = time.time()
    waiting_for(installed, "ApprovalRequired")
    done = record(installed, CANARY).since
    assert time.time() - done >= 15 > since - done
    assert nobody_began(watch)
    assert "waits for approval" in rollout_status(installed)
    assert "approved" in installed.gpuward("approve", "canary")
    all_are_done(watch)


def test_a_window_opens(installed: Plane, watch: NodeWatch) -> None:
    opens = datetime.now(UTC) + timedelta(seconds=30)
    window = {"start": f"{opens:%Y-%m-%dT%H:%M:%SZ}", "end": f"{opens + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"}
    begin(installed, windows=[window])
    eventually("all wait for it", lambda: reasons(installed) == dict.fromkeys((CANARY, *LATER), "WindowShut"))
    assert datetime.now(UTC) < opens, "the machine is too slow for this test"
    watch.wait_for_rollout()
    assert all(record(installed, name).started >= int(opens.timestamp()) for name in (CANARY, *LATER))


def test_a_canary_fails_by_promql_and_is_promoted(installed: Plane, watch: NodeWatch, prometheus: str) -> None:
    check = {"name": "slo", "promql": {"server": prometheus, "query": "vector(7)", "failWhen": "> 5"}, "interval": "10s",
             "for": "10s"}
    begin(installed, waves=[{**WAVE, "analysis": [check]}])
    canary_is_done(watch)
    waiting_for(installed, "AnalysisFailed")
    assert nobody_began(watch)
    said = " ".join(installed.gpuward("explain", LATER[0]).split())
    assert all(words in said for words in ("slo", "7", "gpuward promote")), said
    installed.gpuward("promote")
    all_are_done(watch)


def test_a_prometheus_that_cannot_be_reached_holds_and_is_named(installed: Plane, watch: NodeWatch) -> None:
    check = {"name": "slo", "promql": {"server": "http://127.0.0.1:1", "query": "up", "failWhen": "> 5"}, "interval": "10s",
             "for": "10s"}
    begin(installed, waves=[{**WAVE, "analysis": [check]}])
    canary_is_done(watch)
    waiting_for(installed, "AnalysisUnknown")
    assert "http://127.0.0.1:1" in " ".join(installed.gpuward("explain", LATER[0]).split())
    assert nobody_began(watch)
    rollout_policy(installed)
    all_are_done(watch)


def test_a_rollout_is_aborted_and_another_driver_asks_anew(installed: Plane, watch: NodeWatch) -> None:
    begin(installed, waves=[{**WAVE, "soak": "1h"}])
    canary_is_done(watch)
    waiting_for(installed, "WaveSoaking")
    installed.gpuward("abort")
    waiting_for(installed, "Aborted")
    installed.gpuward("promote")
    time.sleep(5)
    assert nobody_began(watch)
    assert not any(sight.unschedulable for sight in watch.moments[-1].values())
    with NodeWatch(installed) as anew:
        start_rollout(installed, next(VERSIONS))
        canary_is_done(anew)
        waiting_for(installed, "WaveSoaking")
        assert nobody_began(anew)
        installed.gpuward("promote")
        all_are_done(anew)
