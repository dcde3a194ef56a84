"""Draw the pictures of the documentation: a fleet in the sandbox in mid-rollout, as a terminal shows it.

The pictures are SVG files without fonts or scripts of others.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click
from rich.console import Console, ConsoleDimensions, Group
from rich.terminal_theme import MONOKAI
from tests.journeys.looking import explanation_of
from tests.journeys.stage import Stage, playing

from gpuward import names
from gpuward.cli.explain import show
from gpuward.cli.leader import Leader
from gpuward.cli.look import Look, Picture
from gpuward.cli.status import Choice, screen
from gpuward.kube.http.client import Client
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from kubesandbox.timeloop import run_virtual

NODES = 200
SIZE = ConsoleDimensions(120, 30)
FORMAT = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px;
}}
{styles}
</style>
<defs>
{lines}
</defs>
<rect fill="#1a1a1a" width="{width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


@click.command()
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=Path("docs/images"), show_default=True)
def main(folder: Path) -> None:
    """Draw all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    run_virtual(lambda: _draw(folder))


async def _draw(folder: Path) -> None:
    upgrade = {"maxParallelUpgrades": 8, "maxUnavailable": "25%"}
    async with playing(Stage(NODES, upgrade=upgrade)) as stage:
        await stage.installed()
        stage.run_pod("notebook", "gpu-117")
        stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-042"))
        await stage.label("gpu-007", names.UPGRADE_SKIP, "true")
        await stage.upgrade_to()
        await stage.until(lambda: list(stage.states().values()).count(State.DONE) > NODES // 3 and stage.hold("gpu-042"), 36000)
        await stage.rest(300)
        look = Look(Client(stage.sandbox.transport()), names.DEFAULT_NAMESPACE)
        async with look.following():
            picture = look.picture(await look.leader())
        leader = Leader("operator gpu-operator-6c9d renewed its Lease 1s ago", picture.now)
        _save(folder / "status.svg", "gpuward status", _status(picture, leader))
        found = await explanation_of(stage, "gpu-117")
        _save(folder / "explain.svg", "gpuward explain gpu-117", lambda console: show(found, leader, console))


def _status(picture: Picture, leader: Leader) -> Any:
    return lambda console: console.print(Group(*screen(picture, leader, Choice(), picture.now, SIZE)))


def _save(file: Path, command: str, draw: Any) -> None:
    console = Console(record=True, file=io.StringIO(), width=SIZE.width, height=SIZE.height, force_terminal=True, highlight=False)
    console.print(f"$ {command}", style="bold")
    draw(console)
    file.write_text(console.export_svg(title=command, theme=MONOKAI, code_format=FORMAT, unique_id="t"), encoding="utf-8")
    click.echo(f"{file}: {file.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
