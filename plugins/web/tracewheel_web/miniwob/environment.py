"""The environment `miniwob`: tasks of MiniWoB++ in a real browser."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator

from tracewheel import DataError, Task, content_hash, spread_tasks
from tracewheel_web.browser import Browser
from tracewheel_web.environment import START_SECONDS, Call, WebArgs, WebEnvironment
from tracewheel_web.miniwob.agents import AGENTS, HIDING
from tracewheel_web.miniwob.server import Server, html_folder
from tracewheel_web.page import Page
from tracewheel_web.scripted import Agent, play

SEEDS = 2**31
TOOL_NAMES = ("click", "fill", "select", "press", "scroll", "look")
SYSTEM_PROMPT = "You use a web page. Each control has a number before it; call one tool at a time until the task is done."


class MiniwobArgs(WebArgs):
    """Which `pages` are played, by name; all of them without it."""

    pages: tuple[str, ...] = Field(default=tuple(AGENTS), min_length=1)

    @field_validator("pages")
    @classmethod
    def _known(cls, pages: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [page for page in pages if page not in AGENTS]:
            raise ValueError(f"no page {unknown[0]!r}; there are {', '.join(AGENTS)}")
        return pages


@dataclass(frozen=True)
class Shared:
    """What the episodes of a process share."""

    browser: Browser
    server: Server


class MiniwobEnvironment(WebEnvironment):
    """A task of MiniWoB++: a small page that makes its own problem from a seed, and judges it.

    ```yaml
    environment: {kind: miniwob, args: {pages: [click-button, login-user, read-table]}}
    ```

    Families are pages. A task's `initial_state` is `{"page": name, "seed": number}`; its prompt is what the page asks, and the
    page as it is at first. Success is the page's own full reward, without its clock and its penalties: `reward` of the verdict
    is 1 or 0, the part `raw` is what the page gave.

    State: `{"page": ..., "seed": ..., "done": bool, "verdict": ..., "pictures": [...]}`.
    """

    kind = "miniwob"
    Args = MiniwobArgs
    verifiers = ("verdict",)
    reaches = True  # a folder for pictures
    tool_names = TOOL_NAMES
    size = (500, 320)
    pictured = (160, 210)  # beside it the pages show the reward
    skip = "#query, #reward-display, #click-canvas, #sync-task-cover"
    shows_address = False

    def __init__(self, args: MiniwobArgs | None = None) -> None:
        super().__init__(args or MiniwobArgs())
        self.families = (args or MiniwobArgs()).pages
        self.tiers = tuple(sorted({AGENTS[page][0] for page in self.families}))
        self.system_prompt = self.args.system_prompt or SYSTEM_PROMPT
        self._start: dict[str, Any] = {}
        self._outcome: tuple[bool, float] = (False, 0.0)

    @classmethod
    def setup(cls, args: MiniwobArgs) -> Shared:
        """The browser and the server of the pages; the browser starts with the first."""
        return Shared(Browser(cls.size, keep=True), Server(html_folder()))

    @classmethod
    def close_resources(cls, resources: Shared) -> None:
        """End both."""
        resources.browser.close()
        resources.server.close()

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        start = logged.get("initial_state")
        if not isinstance(start, dict) or {name: type(value) for name, value in start.items()} != {"page": str, "seed": int}:
            raise DataError("'initial_state' is to have 'page', a name, and 'seed', a whole number")
        if start["page"] not in AGENTS:
            raise DataError(f"'initial_state.page': there is no page {start['page'][:80]!r}")
        return self._task(prompt, start)

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """Different tasks of all pages, as the pages make them.

        Raises:
            ConfigError: a browser or the pages are not installed, or there are not that many different tasks.
            BridgeFailure: the browser fails.
        """
        try:
            # A page has one tier.
            return spread_tasks(lambda page, _, rng: self._made(page, rng), self.families, (0,), n, seed)
        finally:
            self._leave()

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Tasks of the same page."""
        rng = random.Random(f"variants-{task.id}-{seed}")
        try:
            return [self._made(task.family, rng) for _ in range(n)]
        finally:
            self._leave()

    def solution(self, task: Task) -> list[Call] | None:
        """The calls of the scripted agent."""
        return play(self, task, self.agent(task)).calls

    def near_misses(self, task: Task) -> dict[str, list[Call]]:
        """Its calls with one thing wrong."""
        return play(self, task, self.agent(task)).near_misses()

    def agent(self, task: Task) -> Agent:
        """The page's scripted agent, which sees what the policy sees."""
        return AGENTS[task.family][1]

    def reset(self, task: Task) -> None:
        self._open(task.initial_state)
        self._listed()  # the prompt has shown it

    def snapshot(self) -> dict[str, Any]:
        done, raw = self._outcome
        reward = float(done and raw >= 1.0)
        return {**self._start, "done": done, "verdict": {"reward": reward, "parts": {"raw": raw}}, **self._seen()}

    async def _ended(self, page: Page) -> bool:
        done, raw = await page.of_page("[WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL]")
        self._outcome = (done, float(raw) if done else 0.0)
        return bool(done)

    def _open(self, start: dict[str, Any]) -> None:
        self._leave()
        self._start, self._outcome = dict(start), (False, 0.0)
        self._enter(start["page"], self.shared.server.origin, f"/miniwob/{start['page']}.html?seed={start['seed']}")

    def _made(self, page: str, rng: random.Random) -> Task:
        start = {"page": page, "seed": rng.randrange(SEEDS)}
        self._open(start)
        assert self._page is not None
        asked = self._work(self._page.of_page("core.getUtterance()"), START_SECONDS, "read the task")
        return self._task(f"{asked}\n\n{self._listed()}", start)

    def _task(self, prompt: str, start: dict[str, Any]) -> Task:
        name = content_hash([self.kind, start["page"], prompt, start["seed"] if start["page"] in HIDING else None])
        return Task(
            id=f"{self.kind}-{name}",
            environment=self.kind,
            family=start["page"],
            tier=AGENTS[start["page"]][0],
            prompt=prompt,
            initial_state=start,
            goal={},
            verifier="verdict",
            fingerprint=name,
        )
