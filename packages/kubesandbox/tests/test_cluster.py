from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any

import pytest

from kubesandbox.builders import deployment, linux_node, namespace, template
from kubesandbox.cluster import Sandbox
from kubesandbox.errors import InputError, NotFound
from kubesandbox.sim.objects import is_ready, is_true
from kubesandbox.store import Store
from kubesandbox.timeloop import run_at_speed, run_virtual
from sandbox_helpers.virtual import started, virtual_with


def web(replicas: int) -> list[dict[str, Any]]:
    small = {"requests": {"cpu": "250m", "memory": "256Mi"}}
    return [namespace("web"), deployment("web", "web", replicas, template("web", "registry.example/web:2", small))]


with_sandbox = virtual_with(lambda: started(Sandbox()))


def ready_pods(sandbox: Sandbox) -> int:
    return sum(map(is_ready, sandbox.store.list("pods", "web")))


def test_what_fills_a_cluster_was_there_before_it_lives() -> None:
    """Its pods run on, with the uids and the status that they had, and are put back where their owner wants more."""
    async def main() -> None:
        old = Sandbox(seed=1)
        await old.start()
        old.add_node(linux_node("node-1"))
        for obj in web(2):
            old.apply(obj)
        await old.until(lambda: ready_pods(old) == 2)
        await old.stop()
        kept = {key: old.store.list(key) for key in ("nodes", "namespaces", "replicasets.apps", "pods")}
        for owner in kept["replicasets.apps"]:
            del owner["metadata"]["ownerReferences"]

        def fill(store: Store) -> None:
            for key, objects in kept.items():
                for obj in objects:
                    if store.find(key, obj["metadata"].get("namespace"), obj["metadata"]["name"]) is None:
                        store.restore(key, obj)

        new = Sandbox(seed=2, fill=fill)
        await new.start()
        await asyncio.sleep(30)
        assert {pod["metadata"]["uid"] for pod in new.store.list("pods")} == {pod["metadata"]["uid"] for pod in kept["pods"]}
        assert ready_pods(new) == 2
        new.store.delete("pods", "web", kept["pods"][0]["metadata"]["name"])
        await asyncio.sleep(30)
        assert ready_pods(new) == 2
        await new.stop()

    run_virtual(main)


def test_the_same_seed_plays_the_same_story() -> None:
    def story(seed: int) -> list[str]:
        told: list[str] = []

        async def main() -> None:
            sandbox = Sandbox(seed=seed)
            sandbox.store.subscribe(lambda event: told.append(
                f"{sandbox.store.now()} {event.type} {event.resource_key} {event.obj['metadata']['name']}"))
            await sandbox.start()
            for number in range(7):
                sandbox.add_node(linux_node(f"node-{number}"))
            for obj in web(20):
                sandbox.apply(obj)
            await sandbox.until(lambda: ready_pods(sandbox) == 20)
            await sandbox.stop()

        run_virtual(main)
        return told

    first = story(7)
    assert story(7) == first
    assert story(8) != first


def test_it_serves_over_http_on_a_fast_clock() -> None:
    async def main() -> list[str]:
        sandbox = Sandbox()
        await sandbox.start()
        for number in (1, 2):
            sandbox.add_node(linux_node(f"node-{number}"))
        kubeconfig = await sandbox.serve()
        url = next(line.split()[-1] for line in kubeconfig.splitlines() if "server:" in line)
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{url}/api/v1/nodes").read())
        await sandbox.stop()
        return [node["metadata"]["name"] for node in json.loads(text)["items"]]

    assert run_at_speed(main, 10) == ["node-1", "node-2"]


def test_a_kind_that_nobody_knows_is_refused_by_name() -> None:
    async def main() -> None:
        sandbox = Sandbox()
        with pytest.raises(InputError, match=r"example\.com/v1 Thing"):
            sandbox.apply({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}})
        await sandbox.stop()

    run_virtual(main)


def test_an_operating_system_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"^os: 'windows'"):
        linux_node("node-1", "windows")


@with_sandbox
async def test_a_node_goes_and_comes_with_its_kubelet(sandbox: Sandbox) -> None:
    sandbox.add_node(linux_node("node-1"))
    sandbox.disconnect("node-1")
    await sandbox.until(lambda: not is_true(sandbox.store.get("nodes", None, "node-1"), "Ready"), timeout=60)
    sandbox.reconnect("node-1")
    await sandbox.until(lambda: is_true(sandbox.store.get("nodes", None, "node-1"), "Ready"), timeout=5)
    sandbox.set_node_ready("node-1", False)
    await sandbox.until(lambda: sandbox.store.get("nodes", None, "node-1")["spec"].get("taints"), timeout=5)
    sandbox.remove_node("node-1")
    assert not sandbox.store.list("nodes")
    with pytest.raises(NotFound):
        sandbox.machine("node-1")


@with_sandbox
async def test_a_machine_outlives_its_node_and_registers_anew(sandbox: Sandbox) -> None:
    old = sandbox.add_node(linux_node("node-1"))
    sandbox.store.delete("nodes", None, "node-1")
    made = sandbox.register_node("node-1")
    assert made["metadata"]["uid"] != old["metadata"]["uid"]
    kernel = "feature.node.kubernetes.io/kernel-version.full"
    assert kernel not in made["metadata"]["labels"]
    await sandbox.until(lambda: kernel in sandbox.store.get("nodes", None, "node-1")["metadata"]["labels"], timeout=61)


@with_sandbox
async def test_a_rebooted_machine_starts_its_pods_again(sandbox: Sandbox) -> None:
    sandbox.add_node(linux_node("node-1"))
    for obj in web(2):
        sandbox.apply(obj)
    await sandbox.until(lambda: ready_pods(sandbox) == 2)
    sandbox.reboot("node-1", kernel="6.8.0-99-generic")
    await sandbox.until(lambda: ready_pods(sandbox) == 0, timeout=5)
    await sandbox.until(lambda: ready_pods(sandbox) == 2, timeout=10)
    assert sandbox.store.get("nodes", None, "node-1")["status"]["nodeInfo"]["kernelVersion"] == "6.8.0-99-generic"
