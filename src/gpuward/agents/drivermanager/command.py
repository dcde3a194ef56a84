"""The command `driver-manager`: exit code 0 where there is room for a driver, 1 where not, 3 for an unknown subcommand."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuward import errors
from gpuward.agents.api import KubernetesApi, find_access
from gpuward.agents.drivermanager.run import DriverManager
from gpuward.agents.drivermanager.settings import read_settings
from gpuward.agents.host import HostError
from gpuward.agents.machine import Machine
from gpuward.agents.telling import TERMINATION_LOG, Teller
from gpuward.agents.waiting import end_by_signals

MODULE_TOOL, LAST_WORDS = "AGENT_MODULE_TOOL", "AGENT_TERMINATION_LOG"
FOLDERS = {"AGENT_ROOT": "/", "AGENT_SYS": "/sys", "AGENT_PROC": "/proc"}
"""Variables for tests: other folders; a program in place of the kernel and another place for the last words are the two above."""


def driver_manager(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run the driver manager; return its exit code."""
    teller = Teller(termination_log=Path(environ.get(LAST_WORDS) or TERMINATION_LOG))
    try:
        called = read_settings(arguments, environ)
        api = KubernetesApi(find_access(called.kubeconfig, environ))
        if called.command == "preflight_check":
            api.get(f"/api/v1/nodes/{called.settings.node}")
            teller.say(f"node {called.settings.node} can be read: nothing is in the way")
            return 0
        end_by_signals()
        root, sys, proc = (Path(environ.get(variable) or default) for variable, default in FOLDERS.items())
        machine = Machine(root, sys, proc, module_tool=environ.get(MODULE_TOOL, ""))
        DriverManager(called.settings, machine, api, teller).uninstall()
    except (errors.GpuwardError, HostError) as error:
        teller.leave(str(error))
        return error.exit_code
    return 0
