"""What the environments of this wheel have in common: an episode on a page."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from pydantic import Field

from tracewheel import Count, Observation, Positive, Strict, ToolError
from tracewheel_web.browser import Browser
from tracewheel_web.listing import line_of, listed
from tracewheel_web.page import Page, View
from tracewheel_web.tools import TOOLS

Call = tuple[str, dict[str, Any]]
READING = ("look", "scroll", "tab", "back")  # what shows the page also where it is as before
START_SECONDS = 90.0  # a reset may have to start the browser


class WebArgs(Strict):
    """How much of a page the policy reads, how long a step may take, and where pictures go.

    `words` is about how many words an observation has at most. `screenshots` is a folder for a picture of each step, named by
    its digest; the final state lists them with the place that was clicked. `max_concurrent` episodes of a process are open at
    once: each has a browser's context, which is a process of its own.
    """

    words: Count = 200
    max_concurrent: Count = 16
    step_seconds: Positive = 30.0
    screenshots: Path | None = None
    system_prompt: str = Field(default="", max_length=20_000)


class WebEnvironment:
    """An episode on a page; subclasses say which page it is and what its state is.

    A mistake of the policy is a `ToolError`. A browser that crashes or hangs raises `BridgeFailure`: the episode has no score,
    and the next reset starts another.
    """

    exceptions = "failure"  # only `ToolError` is the policy's
    tool_threads = 16
    tool_names: tuple[str, ...] = tuple(TOOLS)
    skip = ""  # a CSS selector of what the policy does not see
    shows_address = True
    size: tuple[int, int]  # of its pages, in pixels
    pictured: tuple[int, int] | None = None  # how much of them a picture shows; None for all
    resources: Any = None

    def __init__(self, args: WebArgs) -> None:
        self.args = args
        self._own: Any = None
        self._page: Page | None = None
        self.view = View()
        self._over = False
        self._shown: set[str] = set()  # the lines that the policy knows
        self._pictures: list[dict[str, Any]] = []

    def tools(self) -> list[dict[str, Any]]:
        return [TOOLS[name] for name in self.tool_names]

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        if self._page is None or self._over:
            raise ToolError("the episode is over")
        if tool == "done":
            self._over = True
            return Observation("", done=True)
        return self._work(self._step(self._page, tool, args), self.args.step_seconds, tool)

    def close(self) -> None:
        """Give the page back, and end the browser where it is this environment's own."""
        self._leave()
        if self._own is not None:
            type(self).close_resources(self._own)  # type: ignore[attr-defined]
            self._own = None

    @property
    def shared(self) -> Any:
        """What its episodes share: given, or its own."""
        if self.resources is None and self._own is None:
            self._own = type(self).setup(self.args)  # type: ignore[attr-defined]
        return self.resources if self.resources is not None else self._own

    @property
    def _browser(self) -> Browser:
        browser: Browser = self.shared.browser
        return browser

    def _work(self, work: Any, seconds: float, doing: str) -> Any:
        return self._browser.call(work, seconds, doing)

    def _leave(self) -> None:
        if self._page is not None:
            self._browser.give_back(self._page)
        self._page = None

    def _enter(self, name: str, origin: str, address: str) -> None:
        """Open the episode's first page and look at it; the last one was left."""
        self._pictures, self._over, self._shown = [], False, set()
        self._work(self._begin(origin, address), START_SECONDS + self.args.step_seconds, f"reset of {name}")

    async def _begin(self, origin: str, address: str) -> None:
        self._page = page = await self._browser.open(origin)
        await page.go(address)
        self.view = await page.look(self.skip)
        await self._photograph(page, None)

    async def _step(self, page: Page, tool: str, args: dict[str, Any]) -> Observation:
        before = [line_of(item) for item in self.view.items]
        place = await page.act(tool, args)
        self.view = view = await page.look(self.skip)
        await self._photograph(page, place)
        self._over = await self._ended(page)
        if self._over:
            return Observation("", done=True)
        if tool not in READING and not view.notes and before == [line_of(item) for item in view.items]:
            return Observation("nothing changed")
        if tool == "look":
            self._shown = set()
        return Observation(self._listed())

    async def _ended(self, page: Page) -> bool:
        """Whether the page says that the episode is over."""
        return False

    def _listed(self) -> str:
        text, self._shown = listed(self.view, self._shown, self.args.words, address=self.shows_address)
        return text

    def _seen(self) -> dict[str, Any]:
        """The pictures of the episode, for its final state."""
        return {"pictures": [dict(picture) for picture in self._pictures]} if self._pictures else {}

    async def _photograph(self, page: Page, place: tuple[int, int] | None) -> None:
        if self.args.screenshots is None:
            return
        content = base64.b64decode(await page.picture(self.pictured))
        digest = hashlib.sha256(content).hexdigest()[:32]
        folder = self.args.screenshots
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{digest}.webp").write_bytes(content)
        if self._pictures and place:  # it acted on what was to be seen before
            self._pictures[-1]["at"] = list(place)
        self._pictures.append({"picture": digest, "size": list(self.pictured or self.size)})
