"""The client's parts against the sandbox's API server, in virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from gpuward import errors
from gpuward.kube.cache.cache import Cache
from gpuward.kube.cache.projection import BY_NAME, Identity, Projection
from gpuward.kube.cache.reflector import Reflector, WatchTiming
from gpuward.kube.config.loading import find_access
from gpuward.kube.events import NORMAL, About, EventRecorder
from gpuward.kube.http.aiohttp_transport import AiohttpTransport
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.lease.election import Candidate, Elector
from gpuward.kube.resources import CONFIG_MAPS, EVENTS, LEASES, NODES, POD_DISRUPTION_BUDGETS, PODS
from gpuward.sandbox.transport import InProcessTransport
from kubesandbox.api import ApiServer
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.server import HttpServer
from kubesandbox.store import Store
from kubesandbox.timeloop import run_virtual
from sandbox_helpers.virtual import virtual_with


class Scene:
    """Hold a sandbox's API server and a client of it."""

    def __init__(self) -> None:
        self.now = asyncio.get_running_loop().time
        self.store = Store(self.now)
        self.api = ApiServer(self.store)
        self.transport = InProcessTransport(self.api, latency=0.004)
        self.client = Client(self.transport)


with_scene = virtual_with(lambda: nullcontext(Scene()))


def config_map(name: str, value: str = "") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
            "data": {"value": value}}


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "x"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    }


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


@with_scene
async def test_objects_go_in_and_come_out(scene: Scene) -> None:
    client = scene.client
    created = (await client.create(CONFIG_MAPS, config_map("m", "1"))).object()
    with pytest.raises(errors.AlreadyExists):
        await client.create(CONFIG_MAPS, config_map("m"))
    created["data"]["value"] = "2"
    replaced = (await client.replace(CONFIG_MAPS, created)).object()
    with pytest.raises(errors.Conflict):
        await client.replace(CONFIG_MAPS, created)
    patched = (await client.patch_merge(CONFIG_MAPS, "m", {"data": {"more": "3"}}, "default")).object()
    assert patched["data"] == {"value": "2", "more": "3"}
    stale = {"metadata": {"resourceVersion": replaced["metadata"]["resourceVersion"]}, "data": {"x": "y"}}
    with pytest.raises(errors.Conflict):
        await client.patch_merge(CONFIG_MAPS, "m", stale, "default")
    await client.delete(CONFIG_MAPS, "m", "default", uid=created["metadata"]["uid"])
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS, "m", "default")


@with_scene
async def test_a_json_patch_whose_test_fails_is_a_conflict_and_a_bad_object_is_invalid(scene: Scene) -> None:
    await scene.client.create(NODES, node("n1"))
    test = {"op": "test", "path": "/spec/unschedulable", "value": True}
    change = {"op": "add", "path": "/spec/unschedulable", "value": True}
    with pytest.raises(errors.Conflict):
        await scene.client.patch_json(NODES, "n1", [test, change])
    with pytest.raises(errors.Conflict):
        await scene.client.patch_json(NODES, "n1", [{"op": "remove", "path": "/metadata/annotations/a"}])
    await scene.client.patch_json(NODES, "n1", [{**test, "value": None}, change])
    assert scene.store.get("nodes", None, "n1")["spec"]["unschedulable"] is True
    bad = pod("p")
    bad["spec"]["containers"] = []
    with pytest.raises(errors.Invalid) as caught:
        await scene.client.create(PODS, bad)
    assert caught.value.details["causes"]


@with_scene
async def test_lists_come_in_pages_of_one_version(scene: Scene) -> None:
    for number in range(7):
        await scene.client.create(CONFIG_MAPS, config_map(f"m{number}"))
    pages = [page async for page in scene.client.pages(Selection(CONFIG_MAPS, "default"), limit=3)]
    assert [len(page.items or ()) for page in pages] == [3, 3, 1]
    assert len({page.version for page in pages}) == 1


@with_scene
async def test_deleting_and_evicting_pods(scene: Scene) -> None:
    client = scene.client
    first = (await client.create(PODS, pod("a"))).object()["metadata"]["uid"]
    await client.create(PODS, pod("b"))
    with pytest.raises(errors.Conflict):
        await client.delete(PODS, "a", "default", uid="another")
    answer = (await client.delete(PODS, "a", "default", uid=first)).object()
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 30
    await client.create(POD_DISRUPTION_BUDGETS, {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    })
    scene.store.patch_status("pods", "default", "b", _ready)
    scene.store.patch_status("poddisruptionbudgets.policy", "default", "budget", _nothing_allowed)
    with pytest.raises(errors.TooManyRequests, match="budget"):
        await client.evict("b", "default")
    scene.store.patch_status("poddisruptionbudgets.policy", "default", "budget", _one_allowed)
    await client.evict("b", "default")
    assert "deletionTimestamp" in scene.store.get("pods", "default", "b")["metadata"]


def _ready(pod: dict[str, Any]) -> None:
    pod["status"] |= {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def _nothing_allowed(budget: dict[str, Any]) -> None:
    budget["status"] = {"observedGeneration": budget["metadata"]["generation"], "disruptionsAllowed": 0,
                        "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}


def _one_allowed(budget: dict[str, Any]) -> None:
    budget["status"]["disruptionsAllowed"] = 1


class Map(msgspec.Struct, frozen=True):
    name: str
    uid: str
    version: str
    value: str


def map_view(raw: bytes) -> Map:
    obj = msgspec.json.decode(raw)
    meta = obj["metadata"]
    return Map(meta["name"], meta["uid"], meta["resourceVersion"], obj["data"]["value"])


class Follower:
    """Follow the ConfigMaps of a namespace."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.cache = Cache(Projection(
            BY_NAME, map_view, lambda seen: Identity("default", seen.name, seen.uid, seen.version)
        ))
        self.reflector = Reflector(
            scene.client, Selection(CONFIG_MAPS, "default"), self.cache, random=Random(seed),
            timing=WatchTiming(watch=20, silence=90),
        )

    def truth(self) -> dict[str, str]:
        """Return name and version of all that the store has."""
        return {
            obj["metadata"]["name"]: obj["metadata"]["resourceVersion"]
            for obj in self.scene.store.list("configmaps", "default")
        }

    def shown(self) -> dict[str, str]:
        """Return name and version of all that the cache has."""
        return {name: seen.version for name, seen in self.cache.items()}


async def make_trouble(scene: Scene, follower: Follower, rng: Random) -> None:
    """Write as somebody else and as ourselves, lag, cut watches, lose answers and forget history."""
    mine: dict[str, int] = {}
    for _ in range(300):
        await asyncio.sleep(rng.choice([0, 0, 0.01, 0.3, 5]))
        name = f"m{rng.randrange(6)}"
        match rng.randrange(7):
            case 0:
                scene.transport.break_streams()
            case 1 if rng.random() < 0.3:
                scene.store.compact(scene.store.version)
                scene.transport.break_streams()
            case 2 if scene.store.find("configmaps", "default", name):
                scene.store.delete("configmaps", "default", name)
            case 3 if name in follower.cache:
                await delete_own(scene, follower, name)
            case 4 if scene.store.find("configmaps", "default", name):
                answer = await scene.client.patch_merge(
                    CONFIG_MAPS, name, {"data": {"value": str(rng.random())}}, "default"
                )
                await asyncio.sleep(rng.choice([0, 1]))
                follower.cache.apply_response(answer.body)
                seen = follower.cache.get(name)
                mine[name] = int(seen.version) if seen else 0
            case _:
                write(scene.store, name, str(rng.random()))
        for key, version in list(mine.items()):
            seen = follower.cache.get(key)
            if seen is None:
                del mine[key]
            else:
                assert int(seen.version) >= version, "a later state was undone"


async def delete_own(scene: Scene, follower: Follower, name: str) -> None:
    seen = follower.cache[name]
    try:
        answer = await scene.client.delete(CONFIG_MAPS, name, "default", uid=seen.uid)
    except errors.NotFound:
        follower.cache.gone(name, seen.uid)
    except errors.Conflict:
        follower.cache.mark_uncertain(name)
    else:
        follower.cache.deleted(name, seen.uid, answer.body)
    assert getattr(follower.cache.get(name), "uid", None) != seen.uid or follower.cache.uncertain


def write(store: Store, name: str, value: str) -> None:
    if store.find("configmaps", "default", name) is None:
        store.create("configmaps", config_map(name, value))
    else:
        store.modify("configmaps", "default", name, lambda obj: obj["data"].update(value=value))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_the_cache_ends_as_the_store(seed: int) -> None:
    async def run() -> None:
        scene, rng = Scene(), Random(seed)
        scene.api.watch_delay = lambda key: rng.choice([0.0, 0.05, 2.0])
        follower = Follower(scene, seed)
        task = asyncio.create_task(follower.reflector.run())
        await make_trouble(scene, follower, rng)
        for name in sorted(follower.cache.uncertain):
            found = scene.store.find("configmaps", "default", name)
            follower.cache.settle(name, msgspec.json.encode(found) if found else None)
        await asyncio.sleep(60)
        assert follower.shown() == follower.truth()
        assert len(scene.store.list("configmaps", "default")) > 0
        task.cancel()
        await asyncio.wait([task])

    run_virtual(run)


@with_scene
async def test_the_lease_is_shared_with_a_second_candidate(scene: Scene) -> None:
    heard: dict[str, list[bool]] = {"first": [], "second": []}
    tasks = {}
    for identity, told in heard.items():
        elector = Elector(
            scene.client, Candidate(identity, "default"), random=Random(identity), wall=scene.now, changed=told.append
        )
        tasks[identity] = asyncio.create_task(elector.run())
        await asyncio.sleep(1)
    await asyncio.sleep(30)
    lease = (await scene.client.get(LEASES, "53822513.nvidia.com", "default")).object()
    assert lease["spec"]["holderIdentity"] == "first"
    tasks["first"].cancel()
    await asyncio.sleep(10)
    assert heard == {"first": [True, False], "second": [True]}
    tasks["second"].cancel()
    await asyncio.wait(tasks.values())


@with_scene
async def test_events_are_stored_and_counted(scene: Scene) -> None:
    recorder = EventRecorder(scene.client, now=scene.now, random=Random(1))
    task = asyncio.create_task(recorder.run())
    for _ in range(3):
        recorder.record(About("v1", "Node", "n1", "u1"), NORMAL, "GPUDriverUpgrade", "same")
    await recorder.flush()
    selection = Selection(EVENTS, fields="involvedObject.name=n1")
    events = [msgspec.json.decode(raw) async for raw in scene.client.list(selection)]
    assert [(event["message"], event["count"]) for event in events] == [("same", 3)]
    task.cancel()
    await asyncio.wait([task])


@with_scene
async def test_a_lost_answer_raises_although_the_write_happened(scene: Scene) -> None:
    def lose(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        proceed()
        raise errors.Unreachable(f"the answer to {request.method} was lost")

    scene.transport.interfere = lose
    with pytest.raises(errors.Unreachable, match="the answer to POST was lost"):
        await scene.client.create(CONFIG_MAPS, config_map("m"))
    assert scene.store.find("configmaps", "default", "m") is not None


def test_a_cache_follows_over_http(tmp_path: Path) -> None:
    async def run() -> None:
        store = Store(time.time)
        server = HttpServer(ApiServer(store))
        await server.start()
        config = tmp_path / "config"
        config.write_text(server.kubeconfig())
        client = Client(AiohttpTransport(find_access(str(config), environ={})))
        cache = Cache(Projection(
            BY_NAME, map_view, lambda seen: Identity("default", seen.name, seen.uid, seen.version)
        ))
        arrived = asyncio.Event()
        cache.subscribe(lambda changes: arrived.set() if "second" in cache else None)
        write(store, "first", "1")
        reflector = Reflector(client, Selection(CONFIG_MAPS, "default"), cache, random=Random(1))
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(10):
            await cache.synced.wait()
            assert list(cache) == ["first"]
            await client.create(CONFIG_MAPS, config_map("second", "2"))
            await arrived.wait()
        assert cache["second"].value == "2"
        assert reflector.failure is None
        task.cancel()
        await asyncio.wait([task])
        await client.close()
        await server.stop()

    asyncio.run(run())
