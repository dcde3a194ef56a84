"""The command `nvidia-validator`: exit code 0 where a component is well, 1 where not."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from gpuward import errors
from gpuward.agents.environment import machine_of, teller_of
from gpuward.agents.host import HostError
from gpuward.agents.signals import await_signal, hold_signals
from gpuward.agents.telling import with_notes
from gpuward.agents.validator.facts import OF_MACHINES, WORKLOAD_TYPE, ValidatorSettings, is_status_file, left_by
from gpuward.agents.validator.settings import ValidatorCall, read_settings
from gpuward.agents.waiting import Patience, ToldToEndError, end_by_signals, no_more_signals

if TYPE_CHECKING:
    from gpuward.agents.api import ApiServer
    from gpuward.agents.host import Host
    from gpuward.agents.telling import Teller

OF_VALIDATOR: Final = ("toolkit", "cuda", "plugin", *OF_MACHINES)
"""What only a validator's own pod validates, not those of other operands, as the driver: when it ends there, what it has said
before holds no more.
"""


def nvidia_validator(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run the validator; return its exit code."""
    hold_signals()
    teller = teller_of(environ)
    try:
        called = read_settings(arguments, environ)
        _run(called, environ, machine_of(environ), teller)
    except errors.GpuwardError as error:
        teller.leave(with_notes(error))
        return error.exit_code
    except Exception as error:  # a defect of ours: who looks at the pod reads that it is one
        teller.leave_defect(error)
        return 1
    return 0


def _run(called: ValidatorCall, environ: Mapping[str, str], host: Host, teller: Teller) -> None:
    settings = called.settings
    if called.words == ("idle",):
        if not any(left_by(settings.component, name) for name in host.entries(settings.output)):
            raise HostError(f"{settings.output} has no status file: this container was started again without the validations "
                            "before it; delete this pod, and they are made again")
        teller.say("all validations are successful")
        await_signal()
        _take_back(host, settings, teller)
        return
    try:
        end_by_signals()
        if called.words:
            _command(called.words, settings, host, teller)
        else:
            _validate(called, environ, host, teller)
    except ToldToEndError as error:
        if not called.words and settings.component in OF_VALIDATOR:
            no_more_signals()
            try:
                _take_back(host, settings, teller)
            except HostError as left:
                error.add_note(str(left))
        raise


def _command(words: tuple[str, ...], settings: ValidatorSettings, host: Host, teller: Teller) -> None:
    if words[0] == "await":
        _await(lambda: _missing(host, settings.output, words[1:]), settings, teller)
    elif words[0] == "await-for":
        _await(lambda: _missing_for(host, settings.output, *words[1:]), settings, teller)
    else:
        from gpuward.agents.validator.vectoradd import add_vectors

        teller.say(add_vectors())


def _validate(called: ValidatorCall, environ: Mapping[str, str], host: Host, teller: Teller) -> None:
    settings = called.settings
    if called.clean:
        _remove(host, settings.output, is_status_file)

    @functools.cache
    def connect() -> ApiServer:
        from gpuward.agents.api import KubernetesApi, find_access

        return KubernetesApi(find_access(called.kubeconfig, environ), teller.say)

    if settings.component == "metrics":
        from gpuward.agents.validator.metrics import NodeMetrics

        NodeMetrics(settings, host, connect(), teller).serve()
    from gpuward.agents.validator.run import Validation

    Validation(settings, host, connect, teller, Patience(teller)).run()


def _take_back(host: Host, settings: ValidatorSettings, teller: Teller) -> None:
    _remove(host, settings.output, functools.partial(left_by, settings.component))
    teller.say("removed the status files: what waits for them waits for the next validation")


def _await(missing: Callable[[], str], settings: ValidatorSettings, teller: Teller) -> None:
    Patience(teller).wait(missing, seconds=math.inf, every=settings.every)


def _missing(host: Host, output: str, files: Sequence[str]) -> str:
    paths = [f"{output}/{name}" for name in files]
    return "" if any(host.read(path) is not None for path in paths) else f"{' or '.join(paths)} is not there"


def _missing_for(host: Host, output: str, workload: str, file: str) -> str:
    path = f"{output}/{WORKLOAD_TYPE}"
    found = host.read(path)
    if found is None:
        return f"{path} is not there"
    return "" if found != workload else _missing(host, output, [file])


def _remove(host: Host, output: str, goes: Callable[[str], bool]) -> None:
    stay = []
    for name in filter(goes, host.entries(output)):
        try:
            host.remove(f"{output}/{name}")
        except HostError as error:
            stay.append(str(error))
    if stay:
        raise HostError("; ".join(stay))
