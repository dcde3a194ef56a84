"""`gpuward run`: the operator, live."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import uuid
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import structlog

from gpuward import names
from gpuward.cli import logs
from gpuward.cli.candidacy import Candidacy
from gpuward.cli.connect import WallClock, check_access, connected, unsupported
from gpuward.cli.garbage import look_as_usual
from gpuward.cli.place import check_place
from gpuward.cli.recordings import own_folder
from gpuward.cli.values import NAMESPACE_FORM, is_namespace
from gpuward.controllers.operator import Operator, Outside, Settings
from gpuward.controllers.page import board_of, page_routes
from gpuward.controllers.serving import health_routes, metrics_routes, parse_address, serve
from gpuward.crd.durations import parse_duration
from gpuward.crd.rules import whole_image
from gpuward.errors import GpuwardError, InputError
from gpuward.kube.config.access import Access
from gpuward.kube.endless import endless
from gpuward.kube.lease.election import Candidate
from gpuward.kube.lease.rules import LeaseTiming
from gpuward.model.kubernetes import OLDEST_NAME, is_too_old
from gpuward.model.rights import LEASES
from gpuward.prometheus.client import PrometheusClient
from gpuward.recorder.recorder import Recorder
from gpuward.registry.client import RegistryClient


class Flags(msgspec.Struct, frozen=True):
    """Hold the flags of the operator's binary, as NVIDIA's has them."""

    metrics_bind_address: str
    health_probe_bind_address: str
    leader_elect: bool
    leader_elect_namespace: str
    leader_lease_renew_deadline: str
    zap_log_level: str
    zap_time_encoding: str
    zap_encoder: str
    zap_devel: bool
    recorder_dir: str
    no_recorder: bool
    ui: bool
    check_images: bool
    trusted_ca: str


def check_flags(flags: Flags) -> None:
    """Refuse flags that cannot be used, whether they are needed now or not.

    Raises:
        InputError: one cannot be used.
    """
    logs.threshold(flags.zap_log_level)
    logs.known_times(flags.zap_time_encoding)
    parse_address("--metrics-bind-address", flags.metrics_bind_address)
    parse_address("--health-probe-bind-address", flags.health_probe_bind_address)
    _timing(flags)


def run_operator(kubeconfig: str | None, context: str | None, flags: Flags) -> None:
    """Run the operator until a signal comes.

    Raises:
        InputError: the namespace, or a flag, cannot be used.
    """
    logs.configure(
        logs.to_stream(sys.stderr), WallClock().now, level="debug" if flags.zap_devel else flags.zap_log_level,
        times=flags.zap_time_encoding, readable=flags.zap_devel or flags.zap_encoder == "console",
    )
    namespace = os.environ.get("OPERATOR_NAMESPACE", "")
    if not namespace:
        raise InputError("OPERATOR_NAMESPACE", namespace, "set it to the namespace in which the operator and its operands live")
    if not is_namespace(namespace):
        raise InputError("OPERATOR_NAMESPACE", namespace, NAMESPACE_FORM)
    settings = Settings(namespace, {key: value for key, value in os.environ.items() if key.endswith("_IMAGE")})
    for variable, image in sorted(settings.images.items()):
        for problem in whole_image(image, variable) if image else ():
            structlog.get_logger(source="setup").error("A variable of the operator names no image", variable=variable,
                                                       value=image, fix=problem.fix)
    look_as_usual()
    asyncio.run(_run(kubeconfig, context, settings, flags))


async def _run(kubeconfig: str | None, context: str | None, settings: Settings, flags: Flags) -> None:
    log = structlog.get_logger(source="setup")
    async with AsyncExitStack() as stack:
        client, access = await stack.enter_async_context(connected(kubeconfig, context))
        if is_too_old(kubernetes := (await client.server_version()).git_version):
            log.error(f"This Kubernetes is older than {OLDEST_NAME}, the oldest that gpuward supports", version=kubernetes,
                      fix="upgrade the cluster")
        await check_place(client, settings.namespace)
        for resource in await check_access(client):
            log.error("A resource is not installed; waiting for it", resource=resource, fix="gpuward crds | kubectl apply "
                      "--server-side -f -")
        for told in await unsupported(client):
            log.warning(told, fix="drivers and operands come from a ClusterPolicy")
        candidate = _candidate(settings, flags)
        standing = Candidacy(client, candidate, lambda: turned(), elects=flags.leader_elect,
                             blind=lambda is_blind: operator.cluster.may_list(LEASES, not is_blind))
        elector = standing.elector(access)
        ledger = candidate if flags.leader_elect else None
        operator = Operator(client, settings, WallClock(), lambda: standing.acts(elector), ledger,
                            Outside(RegistryClient(flags.trusted_ca) if flags.check_images else None, PrometheusClient()))
        board = board_of(operator, settings.namespace, lambda: elector.holder, candidate.identity) if flags.ui else None

        def turned() -> None:
            operator.turned()
            if board is not None:
                board.forget()

        if not flags.no_recorder:
            stack.callback(_recorder(operator, settings, flags, access).close)
        stop = _stopped()
        routes = metrics_routes(operator.metrics) + (page_routes(board) if board is not None else [])
        await stack.enter_async_context(serve("--metrics-bind-address", flags.metrics_bind_address, routes))
        probes = health_routes(lambda: operator.ready, lambda: operator.alive and elector.alive)
        await stack.enter_async_context(serve("--health-probe-bind-address", flags.health_probe_bind_address, probes))
        elector.start()
        stack.push_async_callback(elector.stop)
        log.info("Starting", namespace=settings.namespace, server=access.server)
        try:
            await _all_until(stop, [endless("the operator", operator.run), endless("the leader election", elector.ended)])
        except Exception as error:
            log.error("Something that must not end has ended: the operator ends with it", error=_told(error))
            raise
        log.info("Stopped")


def _recorder(operator: Operator, settings: Settings, flags: Flags, access: Access) -> Recorder:
    folder = Path(flags.recorder_dir) if flags.recorder_dir else own_folder(os.environ, access)
    structlog.get_logger(source="setup").info("Recording decisions", folder=str(folder))
    recorder = Recorder(folder, version("gpuward"), private=not flags.recorder_dir, images=settings.images)
    operator.upgrades.listeners.append(recorder.note)
    operator.operands.listeners.append(recorder.note_policies)
    operator.drivers.listeners.append(recorder.note_drivers)
    return recorder


async def _all_until(stop: asyncio.Event, works: Iterable[Coroutine[Any, Any, NoReturn]]) -> None:
    """Do endless works until told to stop. Raises what ends one of them."""
    tasks = [asyncio.create_task(work) for work in works]
    told = asyncio.create_task(stop.wait())
    await asyncio.wait([*tasks, told], return_when=asyncio.FIRST_COMPLETED)
    for task in (*tasks, told):
        task.cancel()
    await asyncio.gather(*tasks, told, return_exceptions=True)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def _told(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, GpuwardError) else f"{type(error).__name__}: {error}"


def _candidate(settings: Settings, flags: Flags) -> Candidate:
    namespace = flags.leader_elect_namespace or settings.namespace
    return Candidate(f"{socket.gethostname()}_{uuid.uuid4()}", namespace, names.LEADER_LEASE, _timing(flags), looks_around=True)


def _timing(flags: Flags) -> LeaseTiming:
    deadline = parse_duration("--leader-lease-renew-deadline", flags.leader_lease_renew_deadline)
    return LeaseTiming.given("--leader-lease-renew-deadline", deadline)


def _stopped() -> asyncio.Event:
    """Return an event that the usual signals to end set."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
