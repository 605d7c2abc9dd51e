"""Reads traces of the web: OSWorld's `traj.jsonl`, and the `trace.trace` in a zip of Playwright's.

Both are files of lines. Pictures lie beside them and are placeholders here. OSWorld keeps a task's result in a file of its own,
so that a reward of 0 in its steps says nothing. Playwright logs what a program did, not what it was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracewheel import (
    InvalidRecord,
    Part,
    Place,
    RawTrace,
    Reader,
    SessionLine,
    Trace,
    as_text,
    build_trace,
    object_field,
    read_parts,
    text_field,
)
from tracewheel_logs import Dialogue

OSWORLD, PLAYWRIGHT = "osworld", "playwright_trace"
SAID = ("response", "raw_response", "reasoning", "thought", "text")
AROUND = {"Tracing", "BrowserType", "Playwright"}  # calls that are about the recording
STEP = {"step_num", "action", "action_timestamp", "response", "reward", "done", "info", "screenshot_file", "instruction"}


def is_step(value: Any) -> bool:
    """Whether this is a line of OSWorld's."""
    return isinstance(value, dict) and {"step_num", "action", "reward", "done"} <= value.keys()


def read_steps(value: Any, place: Place) -> Trace:
    """The trace of one task.

    Raises:
        InvalidRecord: it cannot be read.
    """
    dialogue, before = Dialogue(), None
    if asked := next((text for step in value if (text := text_field(step, "instruction"))), None):
        dialogue.said("user", asked)
    for step in value:
        if step["step_num"] != before:  # a response may hold several actions
            dialogue.end_turn()
            if said := _said(step.get("response")) or _said(step["action"]):
                dialogue.text(said)
        before = step["step_num"]
        dialogue.called(None, "computer", {"action": _command(step["action"])})
        dialogue.replied(None, "computer", _picture(step))
    rewards = [step["reward"] for step in value if type(step["reward"]) in (int, float)]
    return build_trace(
        OSWORLD,
        place,
        RawTrace(
            dialogue.messages(),
            outcome=float(max(rewards)) if any(rewards) else None,
            info={key: part for step in value for key, part in step.items() if key not in STEP},
        ),
    )


def _said(response: Any) -> str:
    """What a model said: a text, or the text in an object."""
    if isinstance(response, dict):
        return next((response[key] for key in SAID if isinstance(response.get(key), str)), "")
    return response if isinstance(response, str) and not response.startswith("pyautogui") else ""


def _command(action: Any) -> Any:
    """An action without what the model said with it."""
    if not isinstance(action, dict):
        return action
    return {key: part for key, part in action.items() if key not in SAID} or action


def _picture(step: dict[str, Any]) -> str:
    name = text_field(step, "screenshot_file")
    return (read_parts({"type": "image", "path": name}).text or "") if name else "ok"


def is_event(value: Any) -> bool:
    """Whether this is the first line of one of Playwright's."""
    return isinstance(value, dict) and value.get("type") == "context-options" and "browserName" in value


def continues(value: Any) -> bool:
    """Whether this is another of its lines."""
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def read_events(value: Any, place: Place) -> Trace:
    """The trace of one context of a browser.

    Raises:
        InvalidRecord: it cannot be read.
    """
    dialogue = Dialogue()
    done = {event.get("callId"): event for event in value if event["type"] == "after"}
    for event in value:
        if event["type"] != "before" or event.get("class") in AROUND:
            continue
        identity, name = event.get("callId"), text_field(event, "method")
        if name is None:
            raise InvalidRecord("unknown format", "a call of Playwright's without its method")
        dialogue.end_turn()
        dialogue.called(identity, name, object_field(event, "params"))
        if identity in done:
            failed = text_field(object_field(done[identity], "error"), "message")
            dialogue.replied(identity, name, f"error: {failed}" if failed else as_text(done[identity].get("result") or "ok"))
    first = value[0]
    return build_trace(
        PLAYWRIGHT, place, RawTrace(dialogue.messages(), id=text_field(first, "contextId"), info={"title": first.get("title")})
    )


def whole(lines: Sequence[SessionLine]) -> Iterable[Part]:
    """All lines of a file, which are one trace."""
    values = [line.value for line in lines]
    return [Part(values, lines[0].line, values)]


READERS = (
    Reader(OSWORLD, is_step, read_steps, "lines", split=whole),
    Reader(PLAYWRIGHT, is_event, read_events, "lines", split=whole, continues=continues),
)
