"""Scripted agents: what they see, how they play, and episodes that are almost theirs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from tracewheel import Task
from tracewheel_web.environment import Call, WebEnvironment
from tracewheel_web.page import View


@dataclass(frozen=True)
class Seen:
    """What a scripted agent sees: what it was asked, and the page."""

    asked: str
    view: View = field(default_factory=View)

    def all(self, role: str, name: str | None = None) -> list[dict[str, Any]]:
        """The controls, or texts, of a role and perhaps a name, in the page's order."""
        return [item for item in self.view.items if item["role"] == role and name in (None, item["name"])]

    def ref(self, role: str, name: str | None = None) -> int:
        """The number of the first of them."""
        found: int = self.all(role, name)[0]["ref"]
        return found

    @property
    def texts(self) -> list[str]:
        """The texts that are no control's."""
        return [item["name"] for item in self.all("text")]


Steps = Generator[Call, Seen, None]
Agent = Callable[[Seen], Steps]


@dataclass(frozen=True)
class Played:
    """An episode of a scripted agent: its calls, and what it saw before each."""

    calls: list[Call]
    views: list[View]

    def near_misses(self) -> dict[str, list[Call]]:
        """Episodes that differ in one thing: not ended, another text, another choice, only the last call."""
        calls = self.calls
        misses = {"not_submitted": calls[:-1]} if len(calls) > 1 else {}
        if len(calls) > 1:
            misses["only_the_end"] = calls[-1:]
        for place, (tool, args) in reversed(list(enumerate(calls))):
            if tool == "fill" and "wrong_text" not in misses:
                # A digit or a letter more; a date or a time takes neither, and is a day or an hour off instead.
                misses["wrong_text"] = _with(calls, place, ("fill", args | {"text": _wrong(args["text"])}))
            other = next(self._others(place), None) if tool == "click" and "other_choice" not in misses else None
            if other is not None:
                misses["other_choice"] = _with(calls, place, ("click", {"ref": other}))
        return misses

    def _others(self, place: int) -> Iterator[int]:
        """Controls like the one that is clicked there, with another name, which no call uses."""
        used = {args.get("ref") for _, args in self.calls}
        items = self.views[place].items
        now = next(item for item in items if item["ref"] == self.calls[place][1]["ref"])
        for item in items:
            alike = item["role"] == now["role"] and item["name"] != now["name"]
            if alike and item["ref"] not in used and "disabled" not in item.get("state", ()):
                yield item["ref"]


def play(environment: WebEnvironment, task: Task, agent: Agent) -> Played:
    """Have a scripted agent play a task on a page of its own, beside an episode that may be open."""
    twin = type(environment)(environment.args)
    twin.resources = environment.shared
    played = Played([], [])
    try:
        twin.reset(task)  # type: ignore[attr-defined]  # of every subclass
        asked = task.prompt.split("\n\n")[0]
        steps = agent(Seen(asked, twin.view))
        call = next(steps, None)
        while call is not None:
            played.calls.append(call)
            played.views.append(twin.view)
            if twin.step(*call).done:
                break
            try:
                call = steps.send(Seen(asked, twin.view))
            except StopIteration:
                break
    finally:
        twin.close()
    return played


def _with(calls: list[Call], place: int, call: Call) -> list[Call]:
    return [*calls[:place], call, *calls[place + 1 :]]


def _wrong(text: str) -> str:
    if len(text) == 10 and text[4] == text[7] == "-":
        return text[:-1] + str((int(text[-1]) + 1) % 10) if not text.endswith("9") else text[:-1] + "1"
    if len(text) == 5 and text[2] == ":":
        return f"{(int(text[:2]) + 1) % 24:02d}{text[2:]}"
    return f"{text}1"
