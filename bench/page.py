"""Measure the operator's page with a large fleet in a real Chromium, and take its pictures for the documentation.

    uv run python -m bench.page [--nodes 5000] [--pictures docs/images]
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
from tests import build
from tests.browser import browsing, chromium
from tests.report.fleets import Fleet, rollout

from gpuward.controllers.page import PATH, Board, page_routes
from gpuward.controllers.serving import serve
from gpuward.model.passes import Pass
from gpuward.report.page import Leading

PICTURED = 12
HEIGHT = 1100
CHOSEN = "document.querySelector('.cell.g-failed').click()"
"""A script that chooses a node, so that a picture shows its details."""


@asynccontextmanager
async def served(fleet: Fleet) -> AsyncIterator[str]:
    """Serve the page of a fleet; yield its address."""
    board = Board(lambda: Leading("gpu-operator-7d9f6c5b8-x2x9k", True), lambda: build.NOW + 5, build.NAMESPACE)
    board.planned(Pass(fleet.snapshot, fleet.policies, build.NOW, fleet.plan))
    begun = time.thread_time()
    data = board.data()
    seconds = time.thread_time() - begun
    click.echo(f"{len(fleet.plan.nodes)} nodes: the document took {seconds * 1000:.0f} ms of CPU, "
               f"{len(data.body) / 1e6:.2f} MB, {len(data.zipped) / 1e3:.0f} kB zipped")
    async with serve("--address", "127.0.0.1:0", page_routes(board)) as address:
        yield f"http://{address}{PATH}"


async def _measure(browser: str, nodes: int, pictures: Path | None) -> None:
    for count in (PICTURED, nodes):
        async with served(rollout(count)) as address, browsing(browser) as page:
            for dark in (False, True):
                await page.look(dark=dark, height=HEIGHT)
                await page.open(address)
                shown = await page.run("performance.getEntriesByName('shown')[0].startTime")
                cells = await page.run("document.querySelectorAll('.cell').length")
                click.echo(f"{cells} nodes drawn {shown:.0f} ms after the address was opened")
                await page.run(CHOSEN)
                if pictures is not None:
                    await page.picture(pictures / f"ui-{count}-{'dark' if dark else 'light'}.png")


@click.command()
@click.option("--nodes", default=5000, show_default=True, type=click.IntRange(1))
@click.option("--pictures", type=click.Path(file_okay=False, path_type=Path), help="A folder for pictures.")
def main(nodes: int, pictures: Path | None) -> None:
    """Measure."""
    with chromium() as browser:
        asyncio.run(_measure(browser, nodes, pictures))


if __name__ == "__main__":
    main()
