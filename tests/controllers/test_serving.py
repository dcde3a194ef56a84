"""Metrics and probes over HTTP."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
import msgspec
import pytest

from gpuward import names
from gpuward.controllers.metrics import Metrics
from gpuward.controllers.serving import health_routes, metrics_routes, parse_address, serve
from gpuward.errors import InputError
from gpuward.model.actions import PatchStatus
from gpuward.model.passes import Outcome, Pass
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, Ref
from gpuward.operands.decide import Reconciliation
from gpuward.operands.status import Verdict, failed, judged
from gpuward.policy.clusterpolicy import ActivePolicy
from gpuward.policy.nvidiadrivers import PoliciesInForce


@pytest.mark.parametrize(("text", "address"), [
    (":8080", ("", 8080)), ("0.0.0.0:8080", ("", 8080)), ("[::]:8080", ("", 8080)), ("localhost:80", ("localhost", 80)),
    ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:81", ("::1", 81)), ("[fe80::1%eth0]:81", ("fe80::1%eth0", 81)),
    ("0", None), ("", None),
])
def test_bind_addresses(text: str, address: tuple[str, int] | None) -> None:
    assert parse_address("--metrics-bind-address", text) == address


@pytest.mark.parametrize("text", [
    "8080", ":", "host", ":70000", ":80a", ":\u00b2", ":" + "0" * 5000, "::1:80", "[::1:80", "::1]:80", "[127.0.0.1]x:80", "-1",
    "http://localhost:80", "[[::1]]:80", ":-1", ": 80",
])
def test_what_is_no_address_is_refused_by_its_flag(text: str) -> None:
    with pytest.raises(InputError, match=r"--metrics-bind-address: .*:8080"):
        parse_address("--metrics-bind-address", text)


async def _get(address: str, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as answer:
        return answer.status, await answer.text()


def test_probes_answer_as_things_are() -> None:
    state = {"ready": False, "alive": True}

    async def main() -> None:
        routes = health_routes(lambda: state["ready"], lambda: state["alive"])
        async with serve("--health-probe-bind-address", "127.0.0.1:0", routes) as address:
            assert [await _get(address, path) for path in ("/readyz", "/healthz")] == [(500, "not yet"), (200, "ok")]
            state.update(ready=True, alive=False)
            assert [await _get(address, path) for path in ("/readyz", "/healthz")] == [(200, "ok"), (500, "not yet")]
            with pytest.raises(InputError, match="choose an address that is free"):
                async with serve("--health-probe-bind-address", address, routes):
                    pass

    asyncio.run(main())


ALL = ("127.0.0.1", "[::1]")


@pytest.mark.parametrize(("address", "reached", "silent"), [
    (":{}", ALL, ()), ("0.0.0.0:{}", ALL, ()), ("[::]:{}", ALL, ()),
    ("127.0.0.1:{}", ["127.0.0.1"], ["[::1]"]), ("localhost:{}", ["127.0.0.1"], ["[::1]"]),
    ("[::1]:{}", ["[::1]"], ["127.0.0.1"]),
])
def test_a_port_alone_is_served_on_both_families(address: str, reached: list[str], silent: list[str]) -> None:
    """As Go's net.Listen has it: the kubelet of an IPv6-only cluster asks the probes at an IPv6 address."""
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        async with serve("--health-probe-bind-address", address.format(port), health_routes(lambda: True, lambda: True)):
            for host in reached:
                assert await _get(f"{host}:{port}", "/healthz") == (200, "ok")
            for host in silent:
                with pytest.raises(aiohttp.ClientConnectorError):
                    await _get(f"{host}:{port}", "/healthz")

    asyncio.run(main())


def test_a_machine_without_ipv6_serves_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)

    async def main() -> None:
        async with serve("--health-probe-bind-address", ":0", health_routes(lambda: True, lambda: True)) as address:
            assert await _get(address.replace("0.0.0.0", "127.0.0.1"), "/readyz") == (200, "ok")

    asyncio.run(main())


@pytest.mark.parametrize(("address", "told"), [
    ("no-such-host.invalid:80", "the host is not known"), ("192.0.2.1:80", "of this machine: Cannot assign"),
    ("a" * 70 + ":80", "write"),
    ("[nonsense]:80", "write an address"), ("a\0b:80", "write an address"),
])
def test_what_cannot_be_bound_is_told_in_one_line(address: str, told: str) -> None:
    async def main() -> None:
        with pytest.raises(InputError, match=told) as caught:
            async with serve("--metrics-bind-address", address, []):
                pass
        assert "\n" not in str(caught.value)

    asyncio.run(main())


def test_a_server_that_is_switched_off_binds_nothing() -> None:
    async def main() -> None:
        async with serve("--metrics-bind-address", "0", []) as address:
            assert address == ""

    asyncio.run(main())


@pytest.mark.parametrize(("verdict", "status"), [
    (None, "-1.0"), (judged({}, has_nfd_labels=True, has_gpu_nodes=True), "1.0"),
    (judged({"state-driver": ""}, has_nfd_labels=True, has_gpu_nodes=True), "0.0"),
])
def test_metrics_have_nvidias_names(verdict: Verdict | None, status: str) -> None:
    metrics = Metrics()
    labels = {names.NFD_GPU_LABELS[0]: "true", names.GPU_PRESENT: "true"}
    facts = Snapshot("ns", {name: NodeView(name, labels=labels) for name in "abc"})
    metrics.applied(Pass(facts, PoliciesInForce(ActivePolicy()), 1700000000.0, Reconciliation(verdict=verdict)))

    async def main() -> str:
        async with serve("--metrics-bind-address", "127.0.0.1:0", metrics_routes(metrics)) as address:
            return (await _get(address, "/metrics"))[1]

    text = asyncio.run(main())
    assert f"gpu_operator_reconciliation_status {status}\n" in text
    assert "gpu_operator_gpu_nodes_total 3.0\n" in text
    assert "gpu_operator_reconciliation_total" in text
    assert "gpu_operator_reconciliation_failed_total" in text
    assert "_created" not in text


REFUSED = Outcome(PatchStatus("ClusterPolicy", Ref("", "cluster-policy"), {}), error="no")


@pytest.mark.parametrize(("seen", "count"), [
    ({"decision": Reconciliation(verdict=judged({}, has_nfd_labels=True, has_gpu_nodes=True))}, 0),
    ({"decision": Reconciliation(verdict=judged({"state-driver": "its pods"}, has_nfd_labels=True, has_gpu_nodes=True))}, 0),
    ({"decision": Reconciliation(verdict=judged({}, has_nfd_labels=True, has_gpu_nodes=True)), "outcomes": (REFUSED,)}, 1),
    ({"decision": Reconciliation(verdict=judged({}, has_nfd_labels=True, has_gpu_nodes=True)),
      "outcomes": (msgspec.structs.replace(REFUSED, called_off=True),)}, 0),
    ({"decision": Reconciliation(verdict=failed("state-driver", "no such Secret"))}, 1),
    ({"error": "ValueError"}, 1),
])
def test_a_reconciliation_that_waits_has_not_failed(seen: dict[str, Any], count: int) -> None:
    metrics = Metrics()
    metrics.applied(Pass(Snapshot("ns"), PoliciesInForce(ActivePolicy()), 1700000000.0, **seen))
    text = metrics.text().decode()
    assert "gpu_operator_reconciliation_total 1.0\n" in text
    assert f"gpu_operator_reconciliation_failed_total {count}.0\n" in text
