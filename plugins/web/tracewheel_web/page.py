"""The page of an episode: what an agent sees of it, and the actions that it takes, by reference."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracewheel import BridgeFailure, ToolError
from tracewheel_web.tab import Tab

if TYPE_CHECKING:
    from playwright.async_api import Browser as Chromium
    from playwright.async_api import BrowserContext, Dialog, Download
    from playwright.async_api import Page as Target

MOST_TABS = 4
LOOKS = 3  # a page that goes on to load while it is read is read again, so often
SAID = 80


@dataclass(frozen=True)
class View:
    """What there is to see.

    Attributes:
        items: Controls and texts in the page's order, each with `ref` (0 for a text), `role`, `name` and `seen`, some with
            `value`, `state` and `options`.
        unread: How many parts of the page were not read, for it is too large.
        title: The page's.
        path: Path and query of its address.
        below: How many pixels lie below what is in sight.
        notes: What happened beside: a dialog, a download, a new tab.
    """

    items: tuple[dict[str, Any], ...] = ()
    unread: int = 0
    title: str = ""
    path: str = ""
    below: int = 0
    notes: tuple[str, ...] = ()


class Page:
    """A browser context with its tabs, for one episode at a time."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.origin = origin
        self.uses = 1
        self._context = context
        self._tabs: list[Tab] = []
        self._now = 0
        self._last = 0
        self._opening = 0
        self._failed = False
        self._notes: list[str] = []
        self._waiting: set[asyncio.Task[None]] = set()

    def is_whole(self, browser: Chromium) -> bool:
        """Whether it is of this browser and may serve another episode."""
        return self._context.browser is browser and not self._failed and len(self._tabs) == 1 and not self._tabs[0].crashed

    async def start(self) -> None:
        """Open the first tab."""
        self._context.on("page", self._opened)
        self._context.on("dialog", self._asked)
        await self._add(await self._context.new_page())

    def begin(self) -> None:
        """Forget the last episode."""
        self.uses += 1
        self._last, self._notes = 0, []

    async def go(self, address: str) -> None:
        """Open an address of the site as the episode's first page. No tool of an agent does."""
        with self._held():
            await self._tab.target.goto(f"{self.origin}{address}", wait_until="load", timeout=0)
            await self._tab.forget_history()

    async def look(self, skip: str = "") -> View:
        """What there is to see, once the page is at rest."""
        with self._held():
            tab = self._tab
            for _ in range(LOOKS):
                found = await tab.ask(self._last, "look", skip)
                self._last = max(self._last, found.get("last", 0))
                if not tab.busy:
                    break
                await tab.settle()
            found.pop("last", None)
            notes, self._notes = tuple(self._notes), []
            if len(self._tabs) > 1:
                notes += (f"tab {self._now + 1} of {len(self._tabs)}",)
            return View(**found | {"items": tuple(found["items"]), "notes": notes})

    async def act(self, tool: str, args: dict[str, Any]) -> tuple[int, int] | None:
        """Carry out an action. Returns the place of the page that it was at, if at any.

        Raises:
            ToolError: it cannot be done.
        """
        with self._held():
            mouse, keyboard = self._tab.target.mouse, self._tab.target.keyboard
            place: dict[str, Any] = {}
            if tool == "click":
                place = await self._asked_page("point", args["ref"])
                await mouse.click(place["x"], place["y"])
            elif tool == "fill":
                place = await self._asked_page("fill", args["ref"], args["text"])
                if place["type"]:
                    await (keyboard.insert_text(args["text"]) if args["text"] else keyboard.press("Delete"))
            elif tool == "select":
                place = await self._asked_page("select", args["ref"], args["option"])
            elif tool == "press":
                await keyboard.press(args["key"])
            elif tool == "scroll":
                await self._asked_page("scroll", args["direction"])
            elif tool == "back":
                if not await self._tab.back():
                    raise ToolError("there is no page before this one")
            elif tool == "tab":
                await self._turn_to(args["number"])
            return (round(place["x"]), round(place["y"])) if "x" in place else None

    async def of_page(self, expression: str) -> Any:
        """The value of an expression among the page's own scripts. Only for pages that we trust."""
        with self._held():
            return await self._tab.of_page(expression)

    async def picture(self, part: tuple[int, int] | None) -> str:
        """What is to be seen, or the part of that size at the document's top left, as WebP in base64."""
        with self._held():
            return await self._tab.picture(part)

    async def close(self) -> None:
        """End it with all that it holds."""
        await self._context.close()

    @property
    def _tab(self) -> Tab:
        tab = self._tabs[self._now]
        if tab.crashed:
            raise BridgeFailure("browser: the page crashed")
        return tab

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """A page that failed, or whose work was given up, serves no other episode."""
        before, self._failed = self._failed, True
        try:
            yield
        except ToolError:  # the agent's mistake
            self._failed = before
            raise
        self._failed = before

    async def _asked_page(self, name: str, *given: Any) -> dict[str, Any]:
        found: dict[str, Any] = await self._tab.ask(self._last, name, *given)
        if problem := found.get("problem"):
            raise ToolError(problem)
        return found

    async def _turn_to(self, number: int) -> None:
        if not 1 <= number <= len(self._tabs):
            raise ToolError(f"there is no tab {number}; the last is {len(self._tabs)}")
        self._now = number - 1
        await self._tab.target.bring_to_front()

    async def _add(self, target: Target) -> None:
        tab = Tab(target)
        await tab.start()
        target.on("download", self._downloads)
        target.on("close", lambda _: self._closed(tab))
        self._tabs.append(tab)

    async def _add_opened(self, target: Target) -> None:
        try:
            await self._add(target)
            self._notes.append(f"tab {len(self._tabs)} was opened")
        finally:
            self._opening -= 1

    def _opened(self, target: Target) -> None:
        if not self._tabs:
            return  # the first is added by `start`
        if len(self._tabs) + self._opening >= MOST_TABS:
            self._notes.append("a new tab was closed: too many are open")
            self._later(target.close())
        else:
            self._opening += 1
            self._later(self._add_opened(target))

    def _closed(self, tab: Tab) -> None:
        place = self._tabs.index(tab)
        if len(self._tabs) == 1:
            tab.crashed = True
            return
        del self._tabs[place]
        self._now = max(0, self._now - (place <= self._now))

    def _asked(self, dialog: Dialog) -> None:
        """A dialog stops the page until it is answered: it is refused, but for one that only informs or would keep the page."""
        self._notes.append(f"dialog, closed: {' '.join(dialog.message.split())[:SAID]}")
        self._later(dialog.accept() if dialog.type in ("alert", "beforeunload") else dialog.dismiss())

    def _downloads(self, download: Download) -> None:
        self._notes.append("a download was refused")
        self._later(download.cancel())

    def _later(self, work: Any) -> None:
        async def quietly() -> None:
            with contextlib.suppress(Exception):  # the page may be gone by then
                await work

        task = asyncio.ensure_future(quietly())
        self._waiting.add(task)  # held, or it may be collected before it is done
        task.add_done_callback(self._waiting.discard)
