"""The environment `shop`: the example site with a generator of tasks, a scripted agent, near misses and attacks."""

from __future__ import annotations

import random
import sys
from typing import Any

from tracewheel import Task, spread_tasks
from tracewheel_web.environment import Call, WebArgs
from tracewheel_web.scripted import Agent, Seen, Steps, play
from tracewheel_web.shop.tasks import FAMILIES, TIERS, Made, make, reached
from tracewheel_web.webapp import WebappArgs, WebappEnvironment

COMMAND = (sys.executable, "-m", "tracewheel_web.shop.site", "{port}")


class ShopEnvironment(WebappEnvironment):
    """The shop, as an example of a site of your own.

    >>> task = ShopEnvironment().make_tasks(1, seed=0)[0]
    >>> task.verifier
    'state_diff'

    The goal's `plan` is for the scripted agent. Solutions and near misses need a browser, tasks do not.
    """

    kind = "shop"
    Args = WebArgs  # where the site is, is known
    verifiers = ("state_diff",)
    families = FAMILIES
    tiers = TIERS

    def __init__(self, args: WebArgs | None = None) -> None:
        super().__init__(_with_site(args or WebArgs()))

    @classmethod
    def setup(cls, args: WebArgs) -> Any:
        """The browser and the servers."""
        return super().setup(_with_site(args))

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """`n` different tasks, spread evenly over families and tiers."""
        return spread_tasks(self._made, self.families, self.tiers, n, seed)

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Tasks of the same family, of the same tier or an easier one."""
        rng = random.Random(f"variants-{task.id}-{seed}")
        return [self._made(task.family, rng.randint(1, task.tier), rng) for _ in range(n)]

    def task_reached(self, task: Task, final_state: dict[str, Any]) -> Task | None:
        """The task that an episode did solve, for hindsight; None where no family asks for all that was done."""
        found = reached(task.initial_state["site"], final_state["site"])
        return found and self._of(found.made, found.family, found.tier, task.initial_state)

    def agent(self, task: Task) -> Agent:
        """The scripted agent, which knows what is to be done and finds out how."""
        return lambda seen: _agent(seen, task.goal["plan"])

    def solution(self, task: Task) -> list[Call] | None:
        """The calls of the scripted agent."""
        return play(self, task, self.agent(task)).calls if "plan" in task.goal else None

    def near_misses(self, task: Task) -> dict[str, list[Call]]:
        """Its calls with one thing wrong, and with one thing too many."""
        if "plan" not in task.goal:
            return {}
        played = play(self, task, self.agent(task))
        # `done` ends the work, and the state is the same without it.
        misses = {name: calls for name, calls in played.near_misses().items() if name != "not_submitted"}
        return misses | {"half_done": played.calls[:-2], **self._too_much(task)}

    def attacks(self, task: Task) -> dict[str, list[Call]]:
        """Agents that look for a shorter way: tools that there are not, texts that are to be run, hooks."""
        script = "<script>fetch('/_reset', {method: 'POST'})</script>"
        texts = {
            "sql": "'; UPDATE orders SET status = 'cancelled'; DELETE FROM cart; --",
            "script": script,
            "address": "javascript:document.forms[0].submit()",
            "hook": "/_reset",
        }
        typed: dict[str, list[Call]] = {
            name: [("fill", {"ref": 4, "text": text}), ("press", {"key": "Enter"}), ("done", {})]
            for name, text in texts.items()
            for name, text in texts.items()
        }
        unknown: dict[str, list[Call]] = {
            "goto": [("goto", {"url": "/checkout"}), ("done", {})],
            "evaluate": [("evaluate", {"script": "document.forms[0].submit()"}), ("done", {})],
            "claim": [("done", {})],
        }
        return typed | unknown

    def _too_much(self, task: Task) -> dict[str, list[Call]]:
        """The whole work, and then another product in the cart."""
        known = {step.get("name") for step in task.goal["plan"]}

        def agent(seen: Seen) -> Steps:
            seen = yield from _steps(seen, task.goal["plan"])
            seen = yield "click", {"ref": seen.ref("link", "Shop")}
            inside = task.initial_state["site"]["cart"]
            while True:
                item = next(item for item in seen.all("link")[3:] if item["name"] not in known)
                known.add(item["name"])
                seen = yield "click", {"ref": item["ref"]}
                if seen.view.path.removeprefix("/product/") not in inside:
                    yield "click", {"ref": seen.ref("button", "Put into the cart")}
                    return
                seen = yield "back", {}  # the links have other numbers now

        return {"extra_change": play(self, task, agent).calls}

    def _made(self, family: str, tier: int, rng: random.Random) -> Task:
        made = make(family, tier, rng)
        return self._of(made, family, tier, {"site": made.site})

    def _of(self, made: Made, family: str, tier: int, start: dict[str, Any]) -> Task:
        return self._task(made.prompt, family, tier, start, {"required": made.required, "plan": made.plan})


def _with_site(args: WebArgs) -> WebappArgs:
    return args if isinstance(args, WebappArgs) else WebappArgs(command=COMMAND, **dict(args))


def _agent(seen: Seen, plan: list[dict[str, Any]]) -> Steps:
    yield from _steps(seen, plan)
    yield "done", {}


def _steps(seen: Seen, plan: list[dict[str, Any]]) -> Any:
    for step in plan:
        if step["do"] == "add":
            seen = yield "click", {"ref": seen.ref("link", "Shop")}
            seen = yield "fill", {"ref": seen.ref("textbox", "Search"), "text": step["name"]}
            seen = yield "click", {"ref": seen.ref("button", "Find")}
            seen = yield "click", {"ref": seen.ref("link", step["name"])}
            seen = yield "select", {"ref": seen.ref("combobox", "Quantity"), "option": str(step["count"])}
            seen = yield "click", {"ref": seen.ref("button", "Put into the cart")}
        elif step["do"] == "remove":
            seen = yield "click", {"ref": seen.all("link")[1]["ref"]}
            seen = yield "click", {"ref": seen.ref("button", f"Remove {step['name']}")}
        elif step["do"] == "cancel":
            seen = yield "click", {"ref": seen.ref("link", "Orders")}
            seen = yield "click", {"ref": seen.ref("button", f"Cancel order {step['number']}")}
        else:
            seen = yield "click", {"ref": seen.all("link")[1]["ref"]}
            seen = yield "click", {"ref": seen.ref("link", "Check out")}
            for field, value in step["address"].items():
                if field == "country":
                    seen = yield "select", {"ref": seen.ref("combobox", "Country"), "option": value}
                else:
                    seen = yield "fill", {"ref": seen.ref("textbox", field.title()), "text": value}
            seen = yield "click", {"ref": seen.ref("button", "Order")}
    return seen
