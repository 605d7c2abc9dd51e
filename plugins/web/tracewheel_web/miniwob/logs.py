"""Logs of a "deployed" web agent, in OpenAI chat format: `python -m tracewheel_web.miniwob.logs`.

The agent knows its pages but has habits, each in contexts that can be seen: it takes the first of several, it forgets the last,
it fills a form in the order of the request whatever the page's. Tasks that recur, which are those to train on, are attempted
several times; all others once, each by a user of its own. Every episode is played in the browser. The same seed gives the
same bytes.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tracewheel import Task, play_calls
from tracewheel_projects import FIRST_EPISODE, log_line
from tracewheel_web.environment import Call
from tracewheel_web.miniwob.environment import MiniwobArgs, MiniwobEnvironment
from tracewheel_web.miniwob.paper import PAGES
from tracewheel_web.scripted import Agent, Seen

# Tasks of a page that recur, how often, of how many users; tasks that do not.
RECURRING, ATTEMPTS, USERS, ONE_OFF = 8, 4, 16, 27
AT_ONCE = 6
MODEL = "web-agent-2026-11"
HELD_OUT_PAGES = ("click-scroll-list", "enter-password")  # no log and no base text is of them


@dataclass(frozen=True)
class Faced:
    """What the agent has before it, and the calls that would solve it."""

    asked: str
    items: tuple[dict[str, Any], ...]
    calls: list[Call]

    def all(self, *roles: str) -> list[dict[str, Any]]:
        return [item for item in self.items if item["role"] in roles]


def _first(*roles: str) -> Callable[[Faced], list[Call]]:
    """Take the first of its kind, whichever was asked for."""

    def fault(faced: Faced) -> list[Call]:
        return [("click", {"ref": faced.all(*roles)[0]["ref"]}), *faced.calls[1:]]

    return fault


def _cancel(faced: Faced) -> list[Call]:
    """To close is to cancel."""
    last = next(item["ref"] for item in faced.items if item["name"] == "Cancel")
    return [("click", {"ref": last})] if faced.asked.endswith('"x".') else faced.calls


def _unchosen(faced: Faced) -> list[Call]:
    """Leave a long list as it is; of a short one take the last."""
    known = faced.all("combobox")[0]["options"]
    if len(known) > 5 or len(faced.calls) < 2:
        return faced.calls[-1:]
    return [("select", faced.calls[0][1] | {"option": known[-1]}), *faced.calls[1:]]


def _all_but_last(faced: Faced) -> list[Call]:
    return [*faced.calls[:-2], faced.calls[-1]] if len(faced.calls) > 2 else faced.calls


def _first_row(faced: Faced) -> list[Call]:
    """The value of the first row, whatever the label."""
    value = faced.all("text")[0]["name"].partition(" | ")[2]
    return [("fill", faced.calls[0][1] | {"text": value}), *faced.calls[1:]]


def _as_asked(faced: Faced) -> list[Call]:
    """Fill the fields in the order of the request."""
    *fills, last = faced.calls
    texts = sorted((args["text"] for _, args in fills), key=faced.asked.index)
    return [*(("fill", args | {"text": text}) for (_, args), text in zip(fills, texts, strict=True)), last]


# By page: what the agent does wrong, and how often. Where the habit happens to be right, the episode is good.
HABITS: dict[str, tuple[Callable[[Faced], list[Call]], float]] = {
    "click-button": (_first("button"), 0.75),
    "click-link": (_first("clickable"), 0.75),
    "click-dialog-2": (_cancel, 0.75),
    "choose-list": (_unchosen, 0.65),
    "click-option": (_first("radio"), 0.75),
    "click-checkboxes": (_all_but_last, 0.7),
    "login-user": (_all_but_last, 0.6),
    "read-table": (_first_row, 0.75),
    "multi-orderings": (_as_asked, 0.75),
    "odd-or-even": (_all_but_last, 0.6),
}


def log_lines(seed: int = 0) -> list[bytes]:
    """The lines of the log file, without line ends, in order of time.

    Raises:
        ConfigError: a browser or the pages are not installed.
    """
    maker = MiniwobEnvironment(MiniwobArgs(pages=tuple(PAGES)))
    try:
        jobs = _jobs(maker, seed)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            records = list(pool.map(lambda job: _record(maker, *job), jobs))
    finally:
        maker.close()
    return [log_line(record) for record in records]


def _jobs(maker: MiniwobEnvironment, seed: int) -> list[tuple[Task, str, datetime, int]]:
    """Who attempts which task, when, and the seed of what happens."""
    rng = random.Random(f"miniwob-{seed}")
    tasks = maker.make_tasks((RECURRING + ONE_OFF) * len(PAGES), seed)
    recurring = tasks[: RECURRING * len(PAGES)]
    jobs = [(task, f"user-{1 + place % USERS:03}") for place, task in enumerate(recurring * ATTEMPTS)]
    jobs += [(task, f"user-{100 + place}") for place, task in enumerate(tasks[len(recurring) :])]
    rng.shuffle(jobs)
    time, found = FIRST_EPISODE, []
    for task, user in jobs:
        time += timedelta(seconds=rng.randint(60, 1800))
        found.append((task, user, time, rng.getrandbits(48)))
    return found


def _record(maker: MiniwobEnvironment, task: Task, user: str, time: datetime, number: int) -> dict[str, Any]:
    environment = MiniwobEnvironment(maker.args)
    environment.resources = maker.shared
    try:
        environment.reset(task)
        asked = task.prompt.split("\n\n")[0]
        calls = solution(maker.agent(task), Seen(asked, environment.view))
        fault, rate = HABITS[task.family]
        if random.Random(number).random() < rate:
            calls = fault(Faced(asked, environment.view.items, calls))
        messages = play_calls(environment, task, calls)
    finally:
        environment.close()
    for message in messages:  # ids that no other episode has, as a provider's
        for call in message.get("tool_calls", ()):
            call["id"] = f"{call['id']}_{number:012x}"
        if "tool_call_id" in message:
            message["tool_call_id"] += f"_{number:012x}"
    return {
        "id": f"chat-{number:012x}",
        "session": f"{user}-{time:%j}",
        "user": user,
        "created": time.isoformat().replace("+00:00", "Z"),
        "model": MODEL,
        "messages": messages,
        "tools": environment.tools(),
        "environment": {"kind": task.environment, "initial_state": task.initial_state, "goal": task.goal},
    }


def solution(agent: Agent, seen: Seen) -> list[Call]:
    """The calls of an agent whose page does not change what there is to do."""
    steps, calls = agent(seen), []
    call = next(steps, None)
    while call is not None:
        calls.append(call)
        try:
            call = steps.send(seen)
        except StopIteration:
            break
    return calls


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("data/web/learning.jsonl"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_bytes(b"".join(line + b"\n" for line in log_lines(arguments.seed)))
    print(f"{arguments.out}: {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
