"""A browser for the tests, where there is one, and the hostile site before it."""

from __future__ import annotations

import importlib.util
import os

import pytest

from plugins.web.tests.hostile_site import SECRET, HostileSite, Outside
from tracewheel import Task, kind_text, make_environment
from tracewheel.core.kind_table import give
from tracewheel.environments import share_resources
from tracewheel_web.browser import browser_path

STEP_SECONDS = 120.0  # a busy machine is slow


def opened(kind: str, **args):
    """An environment that is patient, with its resources."""
    spec = give(kind_text(kind, {"step_seconds": STEP_SECONDS, **args}))
    environment = make_environment(spec)
    share_resources(environment, spec)
    return environment


@pytest.fixture(scope="session")
def chromium() -> str:
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("`make setup-web` installs playwright and Debian's chromium")
    path = browser_path()
    if path is None:
        pytest.skip("no browser: `make setup-web` installs Debian's chromium, or TRACEWHEEL_BROWSER names one")
    return path


@pytest.fixture(scope="session")
def miniwob_pages(chromium) -> None:
    if importlib.util.find_spec("miniwob") is None:
        pytest.skip("`make setup-web` installs the pages of MiniWoB++")


@pytest.fixture(scope="session")
def outside():
    place = Outside()
    yield place
    place.close()


@pytest.fixture(scope="session")
def hostile(outside):
    site = HostileSite(outside)
    yield site
    site.close()


class Visitor:
    """An environment at the hostile site."""

    def __init__(self, site: HostileSite) -> None:
        self.environment = opened("webapp", url=site.url)

    def task(self, path: str = "/") -> Task:
        start = {"site": {"bought": []}, "path": path}
        goal = {"required": [{"path": "/site/bought", "to": ["pen"]}]}
        return self.environment.task_from_log("Buy a pen.", {"family": "desk", "initial_state": start, "goal": goal})

    def visit(self, path: str) -> str:
        """The page that an episode begins with, as the policy reads it."""
        self.now = self.task(path)
        self.environment.reset(self.now)
        return self.look()

    def look(self) -> str:
        return self.environment.step("look", {}).text

    def click(self, name: str) -> str:
        (ref, *_) = [item["ref"] for item in self.environment.view.items if item["ref"] and item["name"] == name]
        return self.environment.step("click", {"ref": ref}).text

    def reward(self) -> float:
        from tracewheel import make_verifier

        return make_verifier("state_diff").verify(self.now, self.environment.snapshot())[0]


@pytest.fixture(scope="session")
def visitor(chromium, hostile):
    before = os.environ.get("TRACEWHEEL_HOOK")
    os.environ["TRACEWHEEL_HOOK"] = SECRET
    visitor = Visitor(hostile)
    yield visitor
    visitor.environment.close()
    if before is None:
        del os.environ["TRACEWHEEL_HOOK"]
