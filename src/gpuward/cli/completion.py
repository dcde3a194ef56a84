"""Completion of commands, options and nodes' names by the Tab key of a shell."""

from __future__ import annotations

import subprocess

import click
from click.shell_completion import ShellComplete, get_completion_class

PROGRAM = "gpuward"
VARIABLE = "_GPUWARD_COMPLETE"
"""By this variable the script that a shell has read asks for completions; click derives it from the program's name."""
_ZSH_REGISTERS = "    compdef _gpuward_completion"
_ZSH_COMPLETES = "    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"
"""A ~/.zshrc need not have turned completion on before it reads the script: nothing can be registered then."""
PATIENCE = 3
"""Seconds that a person may wait for names after a key; a cluster that takes longer is not asked for the rest."""


def print_completion(root: click.Command, shell: str) -> None:
    """Print the script for a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    # The version check of click's own class for bash would run bash, which need not be on this machine.
    script = ShellComplete.source(kind(root, {}, PROGRAM, VARIABLE))
    click.echo(script.replace(_ZSH_REGISTERS, _ZSH_COMPLETES + _ZSH_REGISTERS))


def node_names(kubeconfig: str | None, context: str | None, begun: str) -> list[str]:
    """Return the nodes whose names begin so, as kubectl tells them: it has asked sooner than our client is imported."""
    named = [option for option in (kubeconfig and f"--kubeconfig={kubeconfig}", context and f"--context={context}") if option]
    command = ["kubectl", *named, "get", "nodes", "--no-headers", f"--request-timeout={PATIENCE}s"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    names = [line.split()[0] for line in told.stdout.splitlines() if line.split()]
    return [name for name in names if name.startswith(begun)]
