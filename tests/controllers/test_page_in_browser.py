"""The page in a real browser: what a person sees, reaches with the keyboard, and is protected from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from gpuward.controllers.page import PATH, Board, page_routes
from gpuward.controllers.serving import serve
from gpuward.model.passes import Pass
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS
from gpuward.model.waves import RolloutWaves, WavePhase, WaveStatus
from gpuward.report.page import Leading
from tests import build
from tests.browser import CHROMIUM, Page, browsing, chromium
from tests.report.fleets import Fleet, rollout
from tests.waits import held_by

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine")
LEADS = Leading("operator-1", True, "operator-1", own=True)
EVIL = "<img src=x onerror='window.broken=1'><script>window.broken=1</script>\u202egpu&amp;'\"{}"


class Shown:
    """Hold a page that shows a fleet, and what serves it."""

    def __init__(self, browser: Page) -> None:
        self.browser = browser
        self.leading = LEADS
        self.board = Board(lambda: self.leading, time.time, build.NAMESPACE)
        self._stack = AsyncExitStack()
        self.address = "127.0.0.1:0"

    async def begin(self) -> None:
        """Serve it, at the same address as before."""
        serving = serve("--metrics-bind-address", self.address, page_routes(self.board))
        self.address = await self._stack.enter_async_context(serving)

    async def end(self) -> None:
        """Serve it no more."""
        await self._stack.aclose()

    def tell(self, fleet: Fleet) -> None:
        """Let it know of a fleet."""
        self.board.planned(Pass(fleet.snapshot, fleet.policies, time.time(), fleet.plan))

    async def open(self, path: str = PATH) -> None:
        """Open the page."""
        await self.browser.open(f"http://{self.address}{path}")

    async def text(self, element: str = "body") -> str:
        """Return the text that is seen of an element."""
        return str(await self.browser.run(f"document.querySelector('{element}').innerText"))

    async def cells(self, of: str = "") -> int:
        """Count the nodes that are shown, or those of a group."""
        return int(await self.browser.run(f"document.querySelectorAll('.cell{of}').length"))


Test = Callable[[Shown], Coroutine[Any, Any, None]]


@asynccontextmanager
async def shown(chromium: str) -> AsyncIterator[Shown]:
    """Show a page while the context lasts."""
    async with browsing(chromium) as browser:
        page = Shown(browser)
        await page.begin()
        try:
            yield page
        finally:
            await page.end()


@pytest.fixture(scope="module", name="chromium")
def _chromium() -> Iterator[str]:
    with chromium() as address:
        yield address


def in_browser(test: Test) -> Callable[[str], None]:
    """Run a test in a tab of its own; no script of the page may have failed in the end."""
    def run(chromium: str) -> None:
        async def main() -> None:
            async with shown(chromium) as page:
                await test(page)
                await page.browser.run("1")
                assert [line for line in page.browser.console if "ERR_" not in line] == []

        asyncio.run(main())

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run


@in_browser
async def test_every_node_is_there_with_its_letter_and_the_sums_agree(page: Shown) -> None:
    page.tell(rollout(100))
    await page.open()
    assert await page.text("h1") == "ClusterPolicy cluster-policy: 34 of 100 nodes up to date, 1 failed, 1 held"
    assert await page.cells() == 100
    letters = await page.browser.run("[...document.querySelectorAll('.cell')].map(each => each.textContent).join('')")
    assert {letter: letters.count(letter) for letter in set(letters)} == {"F": 1, "H": 1, "U": 1, "W": 62, "K": 1, "✓": 34}
    assert "61 ParallelLimit, 1 DriverStopping" in await page.text("#groups")
    stuck = "nvidia-dcgm-exporter-gpu-0001 on gpu-0001: container nvidia-dcgm-exporter, CrashLoopBackOff, 7 restarts"
    assert stuck in await page.text("#operands")
    assert "gpuward pause" in await page.text("#commands")
    assert "operator-1 leads" in await page.text("header")
    await page.browser.run("document.querySelector('summary').click()")
    assert "kubectl -n gpu-operator port-forward deployment/gpu-operator 8080" in await page.text("details")


@in_browser
async def test_how_waves_and_operands_stand_is_said_in_words(page: Shown) -> None:
    fleet = rollout(12)
    page.tell(fleet)
    await page.open()
    told = " ".join((await page.text("#operands")).split())
    assert "dcgm-exporter 11 of 12 ready nvidia-dcgm-exporter-gpu-0001" in told
    assert "12 of 12 ready" in told
    assert "none wanted" in told
    assert await page.browser.run("document.getElementById('waved').hidden")
    waves = (WaveStatus("canary", WavePhase.APPROVAL, total=1, done=1, approval=True),
             WaveStatus("night", WavePhase.WAITS, total=4, done=0))
    of = RolloutWaves("", ("560",), waves)
    page.tell(fleet._replace(plan=msgspec.structs.replace(fleet.plan, waves=(of,))))
    await page.browser.until("!document.getElementById('waved').hidden")
    assert (await page.text("#waves")).splitlines() == [
        "canary: 1 of 1 done, waits for approval: gpuward approve", "night: 0 of 4 done, waits"]


@in_browser
async def test_on_a_phone_no_word_of_the_tables_is_broken_and_nothing_is_wider_than_the_screen(page: Shown) -> None:
    fleet = rollout(12)
    stuck = {name: msgspec.structs.replace(status, hold=held_by(Reason.DEVICE_PLUGIN_STOPPING)) if status.state in IN_PROGRESS
             else status for name, status in fleet.plan.nodes.items()}
    page.tell(fleet._replace(plan=msgspec.structs.replace(fleet.plan, nodes=stuck)))
    await page.browser.look(width=390, height=844)
    await page.open()
    broken = await page.browser.run("""(() => {
        const found = [];
        for (const table of ["groups", "operands"]) for (const cell of document.querySelectorAll(`#${table} td`)) {
            const letters = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
            for (let text; text = letters.nextNode();) for (const word of text.data.matchAll(/[^\\s-]+/g)) {
                const range = document.createRange();
                range.setStart(text, word.index);
                range.setEnd(text, word.index + word[0].length);
                if (new Set([...range.getClientRects()].map(each => Math.round(each.top))).size > 1) found.push(word[0]);
            }
        }
        return found })()""")
    assert "upgrading" in await page.text("#operands")
    assert broken == []
    assert await page.browser.run("document.documentElement.scrollWidth <= 390")
    apart = await page.browser.run("""[...document.querySelectorAll('#groups button')].filter(each =>
        each.getBoundingClientRect().top >= each.previousSibling.getBoundingClientRect().bottom).map(each => each.value)""")
    assert apart == []


@in_browser
async def test_nodes_that_wait_for_one_in_trouble_are_not_said_to_go_on_by_themselves(page: Shown) -> None:
    fleet = rollout(12)
    page.tell(fleet)
    await page.open()
    assert "(goes on by itself)" in await page.text("#grid")
    nodes = {name: msgspec.structs.replace(status, hold=held_by(Reason.DRIVER_FAILING)) if status.state in IN_PROGRESS else status
             for name, status in fleet.plan.nodes.items()}
    page.tell(fleet._replace(plan=msgspec.structs.replace(fleet.plan, nodes=nodes)))
    await page.browser.until("document.querySelector('#grid').innerText.includes('somebody to look at')")
    assert "goes on by itself" not in await page.text("#grid")


@in_browser
async def test_hostile_names_and_messages_are_text(page: Shown) -> None:
    fleet = rollout(12, name=EVIL, policy=EVIL)
    page.tell(fleet)
    await page.open()
    await page.browser.run("document.querySelector('.cell').click()")
    assert await page.cells() == 12
    assert "<script>window.broken=1</script>\\u{202e}gpu&amp;" in await page.text("#node")
    assert "<img src=x onerror=" in await page.text("h1")
    assert "\u202e" not in await page.browser.run("document.documentElement.outerHTML")
    assert await page.browser.run("document.querySelectorAll('img, main script, header script').length") == 0
    assert await page.browser.run("typeof window.broken") == "undefined"


@in_browser
async def test_what_would_run_in_spite_of_all_is_refused_by_the_policy(page: Shown) -> None:
    page.tell(rollout(3))
    await page.open()
    tried = await page.browser.run(f"""(() => {{
        try {{ document.body.innerHTML += {EVIL!r} }} catch (error) {{ return error.name }} return "let in" }})()""")
    assert tried == "TypeError"
    await page.browser.run("document.body.append(Object.assign(document.createElement('iframe'), {src: '/ui'}))")
    assert await page.browser.run("typeof window.broken") == "undefined"
    async with asyncio.timeout(30):
        while not any("frame" in line for line in page.browser.console):
            await page.browser.run("1")
    page.browser.console.clear()


@in_browser
async def test_a_keyboard_reaches_every_node_by_few_keys(page: Shown) -> None:
    page.tell(rollout(12))
    await page.open()
    await page.browser.run("document.getElementById('group').focus()")
    await page.browser.press("Tab")
    assert "gpu-0005" in await page.text("#node"), "the first node, one that failed"
    assert "gpuward explain gpu-0005" in await page.text("#node")
    await page.browser.press("ArrowRight")
    assert "gpu-0008" in await page.text("#node")
    await page.browser.press("End", "ArrowLeft", "ArrowRight")
    last = await page.browser.run("document.activeElement.node")
    assert last in await page.text("#node")
    await page.browser.press("Home", "ArrowDown", "ArrowUp")
    assert "gpu-0005" in await page.text("#node")


@in_browser
async def test_filters_take_nodes_by_words_and_by_group(page: Shown) -> None:
    page.tell(rollout(100))
    await page.open()
    ask = "(document.getElementById('query').value = '{}', document.getElementById('query').dispatchEvent(new Event('input')))"
    await page.browser.run(ask.format("h100 failed"))
    await page.browser.until("document.querySelectorAll('.cell').length === 1")
    assert await page.text("#found") == "1 of 100 nodes"
    await page.browser.run(ask.format(""))
    await page.browser.until("document.querySelectorAll('.cell').length === 100")
    await page.browser.run("document.querySelector('#groups button[value=waiting]').click()")
    assert (await page.cells(), await page.cells(".g-waiting")) == (62, 62)


@in_browser
async def test_news_arrive_by_themselves_and_the_focus_stays(page: Shown) -> None:
    page.tell(rollout(12))
    await page.open()
    await page.browser.run("document.querySelector('.cell.g-held').focus()")
    fleet = rollout(12)
    nodes = {name: msgspec.structs.replace(node, up_to_date=True, hold=None, state=fleet.plan.nodes["gpu-0000"].state,
                                           label="upgrade-done") for name, node in fleet.plan.nodes.items()}
    page.tell(Fleet(msgspec.structs.replace(fleet.plan, nodes=nodes), fleet.snapshot, fleet.policies))
    await page.browser.until("document.querySelectorAll('.cell.g-up-to-date').length === 12")
    assert await page.browser.run("document.activeElement.node") == "gpu-0008"
    assert "up to date" in await page.text("#node")


@in_browser
async def test_a_lost_connection_is_said_and_ends(page: Shown) -> None:
    page.tell(rollout(3))
    await page.open()
    assert await page.browser.run("document.getElementById('lost').hidden")
    await page.end()
    await page.browser.until("!document.getElementById('lost').hidden")
    assert "No answer since 20" in await page.text("#lost")
    assert await page.cells() == 3
    await page.begin()
    await page.browser.until("document.getElementById('lost').hidden")


@in_browser
async def test_a_process_that_does_not_lead_shows_who_does(page: Shown) -> None:
    page.leading = Leading("operator-2", False, "operator-1")
    await page.open("/ui/")
    assert "This process does not lead" in await page.text()
    assert "kubectl -n gpu-operator port-forward pod/operator-1 8080" in await page.text("#idle")
    assert await page.cells() == 0
    page.leading = Leading("operator-1", False, "operator-1")
    await page.browser.until("document.body.innerText.includes('Another process on operator-1 leads')")
    assert "port-forward pod" not in await page.text("#idle")
    page.leading = Leading("operator-1", False, "operator-1", own=True)
    await page.browser.until("document.body.innerText.includes('has not let it renew the Lease in time')")
    assert "This process does not lead" in await page.text()
    page.leading = LEADS
    await page.browser.until("document.body.innerText.includes('This process has just begun to lead')")
    page.tell(rollout(3))
    await page.browser.until("document.querySelectorAll('.cell').length === 3")
    page.leading = Leading("operator-1", False, "")
    await page.browser.until("document.body.innerText.includes('It is not known who leads')")


@in_browser
async def test_five_thousand_nodes_are_drawn_soon(page: Shown) -> None:
    page.tell(rollout(5000))
    page.board.data()
    await page.open()
    assert await page.cells() == 5000
    assert await page.browser.run("document.querySelectorAll('[tabindex=\"0\"].cell').length") == 1
    milliseconds = await page.browser.run("performance.getEntriesByName('shown')[0].startTime")
    assert milliseconds < 5000, "docs/ui.md has what it takes on a quieter machine"
