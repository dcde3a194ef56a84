"""The machine and the voice of an agent, as its environment has them. The variables are for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpuward.agents.machine import Machine
from gpuward.agents.telling import TERMINATION_LOG, Teller


def machine_of(environ: Mapping[str, str]) -> Machine:
    """Return the machine: AGENT_ROOT, AGENT_SYS and AGENT_PROC are other folders, AGENT_MODULE_TOOL unloads modules."""
    root, sys, proc = (Path(environ.get(f"AGENT_{name.upper() or 'ROOT'}") or f"/{name}") for name in ("", "sys", "proc"))
    return Machine(root, sys, proc, module_tool=environ.get("AGENT_MODULE_TOOL", ""))


def teller_of(environ: Mapping[str, str]) -> Teller:
    """Return who says what happens: AGENT_TERMINATION_LOG is another file for the last words."""
    return Teller(termination_log=Path(environ.get("AGENT_TERMINATION_LOG") or TERMINATION_LOG))
