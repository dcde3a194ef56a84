"""A real Chromium, driven over its DevTools protocol: what a person who opens the page gets to see."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
"""Where it is; empty for nowhere."""


KEYS = {"Tab": 9, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
"""The keys that can be pressed, and their codes."""


class Page:
    """Hold one tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.console: list[str] = []
        """What the page wrote to the console, and the errors that its scripts did not catch."""

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the answer of a command of the protocol."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json(timeout=60)
            if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.console.append(str(message["params"]))
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])

    async def run(self, script: str) -> Any:
        """Return what an expression comes to, once its promise is kept."""
        told = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, script: str, seconds: float = 30) -> Any:
        """Wait until an expression is true, and return it."""
        async with asyncio.timeout(seconds):
            while not (value := await self.run(script)):
                await asyncio.sleep(0.05)
        return value

    async def open(self, address: str) -> None:
        """Open an address, and wait until the page has been drawn with its first data."""
        await self.call("Page.navigate", url=address)
        await self.until("performance.getEntriesByName('shown').length > 0")

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    async def look(self, *, dark: bool = False, width: int = 1280, height: int = 900) -> None:
        """Set the size of the window, and what the person prefers."""
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self, file: Path) -> None:
        """Save what is seen as a PNG."""
        shot = await self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium() -> Iterator[str]:
    """Run Chromium while the context lasts; yield where its DevTools listen."""
    with TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
             f"--user-data-dir={folder}", "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield f"127.0.0.1:{_port(Path(folder), process)}"
        finally:
            process.terminate()
            process.wait()


def _port(folder: Path, process: subprocess.Popen[bytes]) -> str:
    told, deadline = folder / "DevToolsActivePort", time.monotonic() + 60
    while not (told.exists() and (lines := told.read_text().splitlines())):
        assert process.poll() is None, "Chromium ended"
        assert time.monotonic() < deadline, "Chromium does not start"
        time.sleep(0.05)
    return lines[0]


@asynccontextmanager
async def browsing(address: str) -> AsyncIterator[Page]:
    """Open a tab of its own while the context lasts."""
    async with aiohttp.ClientSession(f"http://{address}") as session:
        async with session.put("/json/new?about:blank") as answer:
            tab = await answer.json(content_type=None)
        try:
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                for domain in ("Page", "Runtime", "Log"):
                    await page.call(f"{domain}.enable")
                await page.call("Emulation.setFocusEmulationEnabled", enabled=True)
                yield page
        finally:
            async with session.get(f"/json/close/{tab['id']}"):
                pass
