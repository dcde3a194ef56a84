"""The command `driver-manager`: exit code 0 where there is room for a driver, 1 where not, 3 for an unknown subcommand."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gpuward import errors
from gpuward.agents.api import KubernetesApi, find_access
from gpuward.agents.drivermanager.run import DriverManager
from gpuward.agents.drivermanager.settings import read_settings
from gpuward.agents.environment import machine_of, teller_of
from gpuward.agents.signals import hold_signals
from gpuward.agents.telling import with_notes
from gpuward.agents.waiting import ToldToEndError, end_by_signals


def driver_manager(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run the driver manager; return its exit code."""
    hold_signals()
    teller, told = teller_of(environ), None
    try:
        end_by_signals()
    except ToldToEndError as error:  # what one that was killed has left is given back all the same
        told = error
    try:
        called = read_settings(arguments, environ)
        api = KubernetesApi(find_access(called.kubeconfig, environ), teller.say)
        if called.command == "preflight_check":
            if told is not None:
                raise told
            api.get(f"/api/v1/nodes/{called.settings.node}")
            teller.say(f"node {called.settings.node} can be read: nothing is in the way")
            return 0
        DriverManager(called.settings, machine_of(environ), api, teller).uninstall(told)
    except errors.GpuwardError as error:
        why = told or error
        teller.leave(with_notes(why))
        return why.exit_code
    except Exception as error:  # a defect of ours: who looks at the pod reads that it is one
        teller.leave_defect(error)
        return 1
    return 0
