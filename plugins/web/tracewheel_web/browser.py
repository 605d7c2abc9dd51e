"""A real Chromium that episodes of a process share, and that reaches one address of this machine and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tracewheel import BridgeFailure, ConfigError
from tracewheel_web.loop import HOW, Loop
from tracewheel_web.page import Page

if TYPE_CHECKING:
    from playwright.async_api import Browser as Chromium
    from playwright.async_api import CDPSession, Playwright

Result = TypeVar("Result")
VARIABLE, NAMES = (
    "TRACEWHEEL_BROWSER",
    ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
)
START_SECONDS, CHECK_SECONDS, CLOSE_SECONDS = 60.0, 20.0, 10.0
# A page that was used so often is closed: Chromium keeps a little of every document.
MOST_USES = 200
# Requests go through the context's proxy, which is none (`Browser.open`). The rest is what a proxy does not see: names, which
# resolve to nothing, and what goes by UDP.
ARGUMENTS = (
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",  # its name in the headless shell
    "--disable-quic",
    "--disable-background-networking",
    "--no-pings",
    "--dns-prefetch-disable",
    "--disable-blink-features=WebTransport",
    "--enable-blink-features=ComputedAccessibilityInfo",
)
NO_PROXY = "http://127.0.0.1:1"  # nobody may listen at port 1 but root; Chromium itself refuses to go there


def browser_path() -> str | None:
    """The browser of this machine: $TRACEWHEEL_BROWSER, else Debian's or Google's."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """Chromium, started at the first page and again after a crash; its pages belong to one loop in a thread of its own.

    Args:
        size: Width and height of its pages.
        keep: Use pages again. Only for a site that keeps nothing in the browser: each other episode has a fresh context.
    """

    def __init__(self, size: tuple[int, int], *, keep: bool = False) -> None:
        self._size, self._keep = size, keep
        self._loop = Loop()
        self._starting: asyncio.Lock | None = None
        self._playwright: Playwright | None = None
        self._chromium: Chromium | None = None
        self._session: CDPSession | None = None
        self._doubtful = False
        self._idle: list[Page] = []

    def call(self, work: Coroutine[Any, Any, Result], seconds: float, doing: str) -> Result:
        """The result of work with a page, from any thread.

        Raises:
            ConfigError: playwright or a browser is not installed.
            BridgeFailure: it takes longer than `seconds`, or the browser ended, hangs or raised.
        """
        try:
            return self._loop.call(work, seconds, doing)
        except BridgeFailure:
            self._doubtful = True
            raise

    async def open(self, origin: str) -> Page:
        """A page that can reach this origin alone."""
        chromium = await self._ready()
        while self._idle:
            page = self._idle.pop()
            if page.origin == origin and page.is_whole(chromium) and page.uses < MOST_USES:
                page.begin()
                return page
            await self._drop(page)
        context = await chromium.new_context(
            proxy={"server": NO_PROXY, "bypass": f"<-loopback>;{origin.removeprefix('http://')}"},
            viewport={"width": self._size[0], "height": self._size[1]},
            accept_downloads=False,
            service_workers="block",
            locale="en-US",
            timezone_id="UTC",
            reduced_motion="reduce",
        )
        page = Page(context, origin)
        await page.start()
        return page

    async def release(self, page: Page) -> None:
        """Take a page back after its episode."""
        if self._keep and self._chromium and page.is_whole(self._chromium) and not self._doubtful:
            self._idle.append(page)
        else:
            await self._drop(page)

    def give_back(self, page: Page) -> None:
        """`release` from any thread, without a wait."""
        self._loop.start(self.release(page))

    def close(self) -> None:
        """End Chromium and the thread."""
        with contextlib.suppress(BridgeFailure):
            self._loop.call(self._end(), 3 * CLOSE_SECONDS, "end")
        self._loop.stop()

    async def _drop(self, page: Page) -> None:
        with contextlib.suppress(Exception):  # its episode is over, and it may be dead
            await asyncio.wait_for(page.close(), CLOSE_SECONDS)

    async def _ready(self) -> Chromium:
        self._starting = self._starting or asyncio.Lock()
        async with self._starting:
            if self._doubtful and self._chromium is not None and not await self._answers():
                await self._end()
            self._doubtful = False
            if self._chromium is None or not self._chromium.is_connected():
                await self._end()
                await self._start()
        assert self._chromium is not None
        return self._chromium

    async def _answers(self) -> bool:
        try:
            assert self._session is not None
            await asyncio.wait_for(self._session.send("Browser.getVersion"), CHECK_SECONDS)
        except Exception:  # whatever the driver raises for a browser that is gone
            return False
        return True

    async def _start(self) -> None:
        from playwright.async_api import async_playwright

        path = browser_path()
        if path is None:
            raise ConfigError(f"no browser found (looked for {', '.join(NAMES)}): {HOW}, or {VARIABLE} names one")
        self._playwright = await async_playwright().start()
        root = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's own sandbox does not work for root
        self._chromium = await self._playwright.chromium.launch(
            executable_path=path, args=[*ARGUMENTS, *root], timeout=START_SECONDS * 1000
        )
        self._session = await self._chromium.new_browser_cdp_session()

    async def _end(self) -> None:
        self._idle.clear()
        for part in (self._chromium and self._chromium.close(), self._playwright and self._playwright.stop()):
            if part:
                with contextlib.suppress(Exception):  # it may be dead already
                    await asyncio.wait_for(part, CLOSE_SECONDS)
        self._chromium = self._playwright = self._session = None
