"""The assistant: five apps over one state in memory, and eleven tools."""

from __future__ import annotations

import random
from typing import Any

from tracewheel import ConfigError, DataError, Observation, Task, canonical_json, fresh_copy, function_tool
from tracewheel_worlds.assistant.agent import near_misses, solution
from tracewheel_worlds.assistant.goals import FAMILIES, TIERS, State, events_on, people_at
from tracewheel_worlds.assistant.logged import check_goal, check_state
from tracewheel_worlds.assistant.stock import circle_of
from tracewheel_worlds.assistant.tasks import assistant_task, make_task

SYSTEM_PROMPT = (
    "You are a personal assistant. A confirmation is the meeting's title, day and time. Answer a request with yes or no. "
    "A note of a request has its title, and who, day and time as text. Who is told of logged hours gets the word logged. "
    "Change nothing that you were not asked to change."
)
ECHO_LIMIT = 32
MOST_TRIES = 200
NOTHING = "(none)"
TYPES = {"string": str, "integer": int}


def _tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    return function_tool(name, description, {key: {"type": kind} for key, kind in parameters.items()})


TOOLS = [
    _tool("contacts", "Who works at a place.", place="string"),
    _tool("events", "The calendar of a day: time, title, person and hours.", day="string"),
    _tool("add_event", "Add an event of one hour.", day="string", time="string", title="string", who="string"),
    _tool("cancel_event", "Delete an event.", day="string", time="string"),
    _tool("inbox", "What a person wrote.", sender="string"),
    _tool("send", "Send a message.", to="string", text="string"),
    _tool("timesheet", "The logged hours of a day.", day="string"),
    _tool("log_hours", "Log hours.", day="string", title="string", hours="integer"),
    _tool("read_note", "Read a note.", title="string"),
    _tool("write_note", "Write a note.", title="string", text="string"),
    _tool("done", "End the work."),
]
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in TOOLS}


class AssistantEnvironment:
    """Calendar, messages, contacts, timesheet and notes of one person, in the manner of AppWorld.

    >>> import random
    >>> from tracewheel_worlds.assistant.tasks import make_task
    >>> apps = AssistantEnvironment()
    >>> apps.reset(make_task("book", 1, random.Random(0)))
    >>> apps.step("log_hours", {"day": "Mon", "title": "budget", "hours": "2"}).text
    'error: hours must be a whole number'

    State: `{"contacts": [{"name", "place"}], "events": [{"day", "time", "title", "who", "hours"}], "inbox": [{"from", "text"}],
    "messages": [{"to", "text"}], "timesheet": [{"day", "title", "hours"}], "notes": [{"title", "text"}], "finished": bool}`;
    `messages` are the sent ones. A call that fails changes nothing; its observation says why.
    """

    kind = "assistant"
    tool_threads = 0  # calls take no time
    verifiers = ("assistant",)
    system_prompt = SYSTEM_PROMPT
    families, tiers = FAMILIES, TIERS

    def __init__(self) -> None:
        self._state: State = {}

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        state, goal = logged.get("initial_state"), logged.get("goal")
        check_state(state)
        check_goal(goal, state)
        return assistant_task(prompt, state, goal)  # type: ignore[arg-type]  # checked above

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Tasks of the same family and circle, of the same tier or the one below; none for people of no known circle."""
        rng, circle = random.Random(f"variants-{task.id}-{seed}"), circle_of(task.initial_state["contacts"][0]["name"])
        if circle is None:
            return []
        return [make_task(task.family, rng.randint(max(1, task.tier - 1), task.tier), rng, circle) for _ in range(n)]

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """`n` tasks, one after the other of each family and tier.

        Raises:
            ConfigError: there are not that many different tasks.
        """
        rng, tasks, known = random.Random(f"assistant-{seed}"), [], set()
        strata = [(family, tier) for tier in TIERS for family in FAMILIES]
        for number in range(n):
            for _ in range(MOST_TRIES):
                task = make_task(*strata[number % len(strata)], rng)
                if task.fingerprint not in known:
                    break
            else:
                raise ConfigError(f"assistant: no {n} different tasks; ask for fewer")
            known.add(task.fingerprint)
            tasks.append(task)
        return tasks

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The calls that solve the task in the most direct way."""
        return solution(task)

    def near_misses(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Calls that almost solve the task."""
        return near_misses(task)

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def reset(self, task: Task) -> None:
        self._state = {**fresh_copy(task.initial_state), "finished": False}

    def outcome(self, task: Task, state: dict[str, Any]) -> Any:
        """What each app holds, in any order; whether the work was ended does not count."""
        return {app: sorted(map(canonical_json, held)) for app, held in state.items() if app != "finished"}

    def snapshot(self) -> dict[str, Any]:
        copied: dict[str, Any] = fresh_copy(self._state)
        return copied

    def restore(self, task: Task, state: dict[str, Any]) -> None:
        """Continue from a snapshot.

        Raises:
            DataError: it is no snapshot of the assistant.
        """
        check_state(state)
        if not isinstance(state.get("finished"), bool):
            raise DataError("a snapshot of the assistant needs 'finished', true or false")
        self._state = fresh_copy(state)

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        parameters = PARAMETERS.get(tool)
        if parameters is None:
            return _error(f"no tool named {tool[:ECHO_LIMIT]}")
        if args.keys() != parameters.keys():
            return _error(f"arguments must be {', '.join(parameters) or 'none'}")
        for name, schema in parameters.items():
            if type(args[name]) is not TYPES[schema["type"]]:
                return _error(f"{name} must be {'text' if schema['type'] == 'string' else 'a whole number'}")
        return getattr(self, f"_{tool}")(**args)

    def _contacts(self, place: str) -> Observation:
        return _lines(people_at(self._state, place))

    def _events(self, day: str) -> Observation:
        return _lines([f"{one['time']} {one['title']} {one['who']} {one['hours']}" for one in events_on(self._state, day)])

    def _inbox(self, sender: str) -> Observation:
        return _lines([one["text"] for one in self._state["inbox"] if one["from"] == sender])

    def _timesheet(self, day: str) -> Observation:
        return _lines([f"{one['title']} {one['hours']}" for one in self._state["timesheet"] if one["day"] == day])

    def _read_note(self, title: str) -> Observation:
        return _lines([one["text"] for one in self._state["notes"] if one["title"] == title])

    def _add_event(self, day: str, time: str, title: str, who: str) -> Observation:
        return self._added("events", {"day": day, "time": time, "title": title, "who": who, "hours": 1})

    def _send(self, to: str, text: str) -> Observation:
        if to not in [contact["name"] for contact in self._state["contacts"]]:
            return _error(f"no contact {to[:ECHO_LIMIT]}")
        return self._added("messages", {"to": to, "text": text})

    def _log_hours(self, day: str, title: str, hours: int) -> Observation:
        return self._added("timesheet", {"day": day, "title": title, "hours": hours})

    def _write_note(self, title: str, text: str) -> Observation:
        return self._added("notes", {"title": title, "text": text})

    def _cancel_event(self, day: str, time: str) -> Observation:
        kept = [one for one in self._state["events"] if (one["day"], one["time"]) != (day, time)]
        if len(kept) == len(self._state["events"]):
            return _error(f"no event on {day[:ECHO_LIMIT]} at {time[:ECHO_LIMIT]}")
        self._state["events"] = kept
        return Observation("ok")

    def _done(self) -> Observation:
        self._state["finished"] = True
        return Observation("done", done=True)

    def _added(self, app: str, entry: dict[str, Any]) -> Observation:
        self._state[app].append(entry)
        return Observation("ok")


def _lines(found: list[str]) -> Observation:
    return Observation("\n".join(found) or NOTHING)


def _error(text: str) -> Observation:
    return Observation(f"error: {text}", error=True)
