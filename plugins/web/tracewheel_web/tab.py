"""One tab: its script in an isolated world, and whether it still loads."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import Page as Target

SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8").strip()
WORLD = "tracewheel"
SETTLE_SECONDS = 3.0  # so long a step waits for what the page still loads
TRIES = 5  # a page may navigate while it is read
ENDLESS = ("EventSource", "WebSocket", "Ping", "Preflight")  # requests that may stay open for as long as the page does


class Tab:
    """A page of Chromium, and what is asked of it through its own protocol: elements by number, pictures, whether it loads."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.crashed = False
        self._navigating = False
        self._requests: set[str] = set()
        self._world: int | None = None
        self._frame = ""
        self._moved = asyncio.Event()

    async def start(self) -> None:
        """Begin to listen; called once."""
        self.target.on("crash", lambda _: setattr(self, "crashed", True))
        session = self._session = await self.target.context.new_cdp_session(self.target)
        for name, hear in (
            ("Page.frameRequestedNavigation", self._navigates),
            ("Page.frameStartedNavigating", self._navigates),
            ("Page.frameNavigated", self._navigated),
            ("Page.loadEventFired", self._rests),
            ("Page.frameStoppedLoading", self._rests),
            ("Page.navigatedWithinDocument", self._rests),
            ("Page.downloadWillBegin", self._rests),
            ("Network.requestWillBeSent", self._requests_one),
            ("Network.loadingFinished", self._ends_one),
            ("Network.loadingFailed", self._ends_one),
        ):
            session.on(name, hear)
        await asyncio.gather(session.send("Page.enable"), session.send("Network.enable"))
        self._frame = (await session.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]

    async def ask(self, last: int, name: str, *given: Any) -> Any:
        """What a function of the page's script returns. `last` is the last number that an element of the episode was given.

        Raises:
            playwright's Error: the page does not answer.
        """
        from playwright.async_api import Error

        for number in range(TRIES):
            try:
                if self._world is None:
                    found = await self._session.send(
                        "Page.createIsolatedWorld", {"frameId": self._frame, "worldName": "tracewheel"}
                    )
                    world = found["executionContextId"]
                    await self._evaluate(f"({SCRIPT})({last})", world)
                    self._world = world
                return await self._evaluate(f"tracewheel.{name}(...{json.dumps(given)})", self._world)
            except Error as error:
                gone = ("context", "navigated", "Promise was collected", "No frame", "Frame with")
                if self.crashed or number == TRIES - 1 or not any(word in str(error) for word in gone):
                    raise
                self._world = None
                await self.settle()
        raise AssertionError("the last try returns or raises")

    async def of_page(self, expression: str) -> Any:
        """The value of an expression among the page's own scripts. Only for pages that we trust."""
        return await self._evaluate(expression, None)

    async def settle(self) -> None:
        """Wait until a navigation has ended and nothing is requested any more, or `SETTLE_SECONDS`.

        What is open then is waited for no more: a page may hold a request for as long as it likes.
        """
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while self.busy:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            self._navigating = False
            self._requests.clear()

    @property
    def busy(self) -> bool:
        """Whether it navigates or waits for an answer."""
        return self._navigating or bool(self._requests)

    async def back(self) -> bool:
        """Go to the page before; whether there is one."""
        history = await self._session.send("Page.getNavigationHistory")
        place = history["currentIndex"]
        if place > 0:
            self._navigating = True
            await self._session.send("Page.navigateToHistoryEntry", {"entryId": history["entries"][place - 1]["id"]})
        return bool(place > 0)

    async def forget_history(self) -> None:
        """Make the page that is open the first, once it stands: some go on by themselves."""
        from playwright.async_api import Error

        for _ in range(TRIES):
            await self.settle()
            with contextlib.suppress(Error):
                await self._session.send("Page.resetNavigationHistory")
                return

    async def picture(self, part: tuple[int, int] | None) -> str:
        """What is to be seen, or the part of that size at the document's top left, as WebP in base64."""
        given: dict[str, Any] = {"format": "webp", "quality": 60}
        if part is not None:
            given["clip"] = {"x": 0, "y": 0, "width": part[0], "height": part[1], "scale": 1}
        taken: str = (await self._session.send("Page.captureScreenshot", given))["data"]
        return taken

    async def _evaluate(self, expression: str, world: int | None) -> Any:
        from playwright.async_api import Error

        given = {"expression": expression, "awaitPromise": True, "returnByValue": True} | (
            {"contextId": world} if world else {}
        )
        answer = await self._session.send("Runtime.evaluate", given)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise Error(str(details.get("exception", {}).get("description") or details["text"])[:300])
        return answer["result"].get("value")

    def _navigates(self, event: dict[str, Any]) -> None:
        if event["frameId"] == self._frame:
            self._navigating = True

    def _navigated(self, event: dict[str, Any]) -> None:
        if event["frame"]["id"] == self._frame:
            self._world = None
            self._navigating = True  # until it is loaded
            self._requests.clear()

    def _rests(self, event: dict[str, Any]) -> None:
        if event.get("frameId", self._frame) == self._frame:
            self._navigating = False
            self._moved.set()

    def _requests_one(self, event: dict[str, Any]) -> None:
        if event.get("type") not in ENDLESS and not event["request"]["url"].startswith(("data:", "blob:")):
            self._requests.add(event["requestId"])

    def _ends_one(self, event: dict[str, Any]) -> None:
        self._requests.discard(event["requestId"])
        self._moved.set()
