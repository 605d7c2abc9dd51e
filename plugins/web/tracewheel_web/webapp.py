"""The environment `webapp`: a site of your own in a real browser."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self

from pydantic import model_validator

from tracewheel import BridgeFailure, DataError, Task, content_hash
from tracewheel_web.browser import Browser
from tracewheel_web.environment import WebArgs, WebEnvironment
from tracewheel_web.site import Site, Sites

PLACE = re.compile(r"/[^\s\\]*")
SYSTEM_PROMPT = (
    "You use a web site. Each control has a number before it. Read the page with look, call one tool at a time, change what "
    "you are asked to and nothing else, and call done at the end."
)


class WebappArgs(WebArgs):
    """Where the site is: a `command` that starts it, with `{port}` for its port on 127.0.0.1, or the `url` where it runs.

    `reset` and `state` are the paths of its hooks: the first takes a task's `site` by POST, the second tells the state as JSON.
    Both must refuse a request whose header `X-Tracewheel-Hook` is not the secret in the variable `TRACEWHEEL_HOOK`. A site at a
    URL keeps one state, so that it has one episode at a time.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    reset: str = "/_reset"
    state: str = "/_state"

    @model_validator(mode="before")
    @classmethod
    def _one_at_a_url(cls, given: Any) -> Any:
        return {**given, "max_concurrent": 1} if isinstance(given, dict) and given.get("url") else given

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("give either `command` or `url`")
        if self.url and not re.fullmatch(r"http://127\.0\.0\.1:\d+", self.url):
            raise ValueError(f"url: {self.url!r} is not on this machine: as http://127.0.0.1:8000")
        for name in ("reset", "state"):
            if not PLACE.fullmatch(getattr(self, name)):
                raise ValueError(f"{name}: a path of the site, as /_{name}")
        return self


@dataclass(frozen=True)
class Shared:
    """What the episodes of a process share."""

    browser: Browser
    sites: Sites


class WebappEnvironment(WebEnvironment):
    """A task on a site of your own, judged by the state that the site tells at the end.

    ```yaml
    environment:
      kind: webapp
      args: {command: [python, shop.py, "{port}"]}
    ```

    A task's `initial_state` is `{"site": what the reset hook takes, "path": where the episode begins}`, the latter `/` if left
    out. Its verifier is `state_diff` unless the log names another: the goal's `required` changes are pointers into `/site`.
    Each episode has a browser context of its own, and, with `command`, a server of its own.

    State: `initial_state` with `site` as the state hook tells it, and `page`, the title and path of the last page.
    """

    kind = "webapp"
    size = (1024, 768)
    Args = WebappArgs
    reaches = True  # a program, an address, a folder

    def __init__(self, args: WebappArgs) -> None:
        super().__init__(args)
        self.system_prompt = args.system_prompt or SYSTEM_PROMPT
        self._site: Site | None = None
        self._start: dict[str, Any] = {}

    @classmethod
    def setup(cls, args: WebappArgs) -> Shared:
        """The browser and the servers; both start when they are needed."""
        return Shared(Browser(cls.size), Sites(args.command, args.url, args.step_seconds))

    @classmethod
    def close_resources(cls, resources: Shared) -> None:
        """End them."""
        resources.browser.close()
        resources.sites.close()

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        start, goal = logged.get("initial_state"), logged.get("goal")
        if not isinstance(start, dict) or "site" not in start or not set(start) <= {"site", "path"}:
            raise DataError("'initial_state' is to have 'site', what the reset hook takes, and perhaps 'path'")
        if not isinstance(goal, dict):
            raise DataError("'goal' is to be an object, as its verifier reads it")
        if not isinstance(start.get("path", "/"), str) or not PLACE.fullmatch(start.get("path", "/")):
            raise DataError("'initial_state.path' is to be a path of the site, as /cart")
        family, tier, verifier = logged.get("family", "webapp"), logged.get("tier", 1), logged.get("verifier", "state_diff")
        if not isinstance(family, str) or not isinstance(tier, int) or not isinstance(verifier, str):
            raise DataError("'family' and 'verifier' are to be texts, 'tier' a whole number")
        return self._task(prompt, family, tier, start, goal, verifier)

    def reset(self, task: Task) -> None:
        self._start = task.initial_state
        self._leave()
        site = self.shared.sites.take()
        try:
            site.ask(self.args.reset, self._start["site"])
        except BridgeFailure:
            self.shared.sites.give_back(site, broken=True)
            raise
        self._site = site
        self._enter("the site", site.origin, self._start.get("path", "/"))

    def snapshot(self) -> dict[str, Any]:
        assert self._site is not None, "reset comes first"
        page = {"title": self.view.title, "path": self.view.path}
        state = self._site.ask(self.args.state)
        return {**self._start, "site": state, "page": page, **self._seen()}

    def _leave(self) -> None:
        super()._leave()
        if self._site is not None:
            self.shared.sites.give_back(self._site)
        self._site = None

    def _task(
        self, prompt: str, family: str, tier: int, start: dict[str, Any], goal: dict[str, Any], verifier: str = "state_diff"
    ) -> Task:
        if verifier == "state_diff":
            goal = goal | {"allowed": sorted({*goal.get("allowed", ()), "/page", "/pictures"})}
        name = content_hash([start, {part: value for part, value in goal.items() if part != "plan"}])
        return Task(f"{self.kind}-{name}", self.kind, family, tier, prompt, start, goal, verifier, name)
