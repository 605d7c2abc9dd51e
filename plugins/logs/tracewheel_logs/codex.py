"""Reads rollouts of Codex: `~/.codex/sessions/*/*/*/rollout-*.jsonl`, one item or event per line.

The response items are the conversation as the model saw it; events repeat it for the screen. Older rollouts hold bare items
after a line about the session. A compaction begins a new conversation, and a rollback leaves the part that was undone as a
branch: each is a trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
    as_tools,
    build_trace,
    identity_of,
    object_field,
    read_parts,
    text_field,
    with_ending,
)
from tracewheel_logs.values import failed_by

FORMAT = "codex"
LINES = {"session_meta", "turn_context", "response_item", "event_msg", "compacted"}
CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "tool_search_call": "arguments",
}
OUTPUTS = {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output"}
# What the provider ran or keeps for itself; the rollout holds no text of it.
UNSEEN = {
    "web_search_call",
    "image_generation_call",
    "ghost_snapshot",
    "compaction",
    "compaction_summary",
    "compaction_trigger",
}
ABORTED = "aborted"


def recognises(value: Any) -> bool:
    """Whether this is a line of a rollout, or the first line of an older one."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("type"), str):
        return value["type"] in LINES and isinstance(value.get("payload"), dict)
    return {"id", "timestamp", "instructions"} <= value.keys() <= {"id", "timestamp", "instructions", "git"}


def continues(value: Any) -> bool:
    """Whether a line of a rollout's file belongs to it: an item, or a mark of its state."""
    return isinstance(value, dict) and (isinstance(value.get("type"), str) or "record_type" in value)


@dataclass
class _Conversation:
    """What the model saw up to here, with the line on which it begins."""

    line: int
    session: dict[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    model: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    unknown: set[str] = field(default_factory=set)
    number: int = 0
    ends: str | None = None
    asked: str | None = None

    def take(self, item: dict[str, Any]) -> None:
        """Add a response item."""
        self.items.append(item)
        kind = item.get("type")
        if kind in UNSEEN:
            self.left_out[str(kind)] += 1
        elif kind == "message" or (kind is None and "role" in item):
            self._say(item)
        elif kind == "agent_message":  # from another agent
            parts = [part for part in item.get("content") or () if part.get("type") != "encrypted_content"]
            self.messages.append({"role": "user", "content": read_parts(parts).text or "", "name": as_text(item.get("author"))})
        elif kind == "reasoning":
            parts = [part for key in ("summary", "content") for part in item.get(key) or ()]
            if thought := read_parts(_texts(parts)).text:
                turn = self._turn()
                turn["reasoning"] = f"{turn['reasoning']}\n{thought}" if turn.get("reasoning") else thought
        elif kind in OUTPUTS:
            output = item.get("output", item.get("tools"))
            self.messages.append({"role": "tool", "tool_call_id": identity_of(item.get("call_id")), "content": _output(output)})
        elif kind in CALLS:
            self._turn().setdefault("tool_calls", []).append(_call(item, CALLS[str(kind)]))
        else:
            self.unknown.add(str(kind))

    def _say(self, item: dict[str, Any]) -> None:
        text = read_parts(_texts(item.get("content"))).text
        if item.get("role") != "assistant":
            self.messages.append({"role": item.get("role"), "content": text or ""})
            return
        turn = self._turn()
        if turn["content"] is not None or "tool_calls" in turn:
            turn = {"role": "assistant", "content": None}
            self.messages.append(turn)
        turn["content"] = text or ""

    def interrupt(self, event: dict[str, Any]) -> None:
        """Mark the turn that the user, or a limit, interrupted; one that was waiting for its tools was whole."""
        if self.messages and self.messages[-1]["role"] == "assistant" and "tool_calls" not in self.messages[-1]:
            self.messages = with_ending(self.messages, failed_by(event.get("reason") or "interrupted"))

    def _turn(self) -> dict[str, Any]:
        """The response that is being read: items that follow one another are one turn."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": None})
        return self.messages[-1]


def _texts(parts: Any) -> Any:
    """Content without the name of its parts: reasoning is text to its reader."""
    if not isinstance(parts, list):
        return parts
    return [
        {**part, "type": "text"} if isinstance(part, dict) and "reasoning" in str(part.get("type")) else part for part in parts
    ]


def _call(item: dict[str, Any], key: str) -> dict[str, Any]:
    given = item.get(key)
    if key == "input":
        given = {"input": given}
    elif key == "action" and isinstance(given, dict):
        given = {name: part for name, part in given.items() if name != "type" and part is not None}
    arguments = given if isinstance(given, str) else as_text(given) or "{}"
    name = item.get("name") or str(item.get("type")).removesuffix("_call")
    identity = identity_of(item.get("call_id") or item.get("id"))
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


SHOWN = {"text", "image", "file", "audio"}  # words in the types of a result's parts


def _output(output: Any) -> str:
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        return str(output["content"])
    if isinstance(output, list) and all(
        isinstance(part, dict) and SHOWN & set(str(part.get("type")).split("_")) for part in output
    ):
        return read_parts(output, "\n").text or ""
    return as_text(output)


def split(lines: Sequence[SessionLine]) -> Iterator[Part]:
    """The conversations of a rollout."""
    rollout = _Rollout(lines[0])
    for line in lines:
        rollout.take(line)
    for number, conversation in enumerate(rollout.conversations()):
        conversation.number = number
        yield Part(conversation, conversation.line, conversation.items)


class _Rollout:
    """Follows the lines of a rollout."""

    def __init__(self, first: SessionLine) -> None:
        self._session: dict[str, Any] = {}
        self._now = _Conversation(first.line, self._session)
        self._ended: list[_Conversation] = []
        self._named = False

    def take(self, line: SessionLine) -> None:
        kind, payload = line.value.get("type"), line.value.get("payload")
        if not isinstance(payload, dict):
            self._take_bare(line)
        elif kind == "session_meta":
            self._begin(payload, line.value)
        elif kind == "turn_context":
            self._now.model = self._now.model or text_field(payload, "model")
        elif kind == "response_item":
            self._now.take(payload)
        elif kind == "compacted":
            self._compact(payload, line)
        elif payload.get("type") == "token_count":
            self._now.usage = object_field(object_field(payload, "info"), "total_token_usage") or self._now.usage
        elif payload.get("type") == "user_message":
            self._now.asked = self._now.asked or text_field(payload, "message")
        elif payload.get("type") == "turn_aborted":
            self._now.interrupt(payload)
        elif payload.get("type") == "thread_rolled_back":
            self._roll_back(payload.get("num_turns"), line)

    def _take_bare(self, line: SessionLine) -> None:
        if isinstance(line.value.get("type"), str):
            self._now.take(line.value)
        elif "record_type" not in line.value:
            self._begin(line.value, line.value)

    def _begin(self, payload: dict[str, Any], value: dict[str, Any]) -> None:
        """Note the facts of the session. A fork repeats those of the session that it comes from after its own."""
        if self._named:
            return
        self._named = True
        self._session.update({"timestamp": value.get("timestamp"), **payload})
        instructions = payload.get("base_instructions")
        text = instructions.get("text") if isinstance(instructions, dict) else instructions
        if isinstance(text, str) and text:
            self._now.messages.insert(0, {"role": "system", "content": text})

    def _compact(self, payload: dict[str, Any], line: SessionLine) -> None:
        system = [message for message in self._now.messages[:1] if message["role"] == "system"]
        self._end("compacted")
        model = self._now.model
        self._now = _Conversation(line.line, self._session, [*system], model=model)
        replacement = payload.get("replacement_history")
        for item in replacement if isinstance(replacement, list) else []:
            if isinstance(item, dict):
                self._now.take(item)
        if not isinstance(replacement, list) and isinstance(payload.get("message"), str):
            self._now.messages.append({"role": "user", "content": payload["message"]})

    def _roll_back(self, turns: Any, line: SessionLine) -> None:
        """Undo the last of the user's turns. What was undone stays a conversation."""
        starts = [place for place, message in enumerate(self._now.messages) if message["role"] == "user"]
        if not isinstance(turns, int) or not 0 < turns <= len(starts):
            return
        self._end("rolled back")
        kept = [dict(message) for message in self._now.messages[: starts[-turns]]]
        self._now = _Conversation(line.line, self._session, kept, model=self._now.model)

    def _end(self, how: str) -> None:
        self._now.ends = how
        self._ended.append(self._now)

    def conversations(self) -> Iterator[_Conversation]:
        for conversation in (*self._ended, self._now):
            if any(message["role"] == "assistant" for message in conversation.messages):
                yield conversation


def read(value: Any, place: Place) -> Trace:
    """The trace of one conversation.

    Raises:
        InvalidRecord: it cannot be read.
    """
    conversation: _Conversation = value
    session = conversation.session
    if conversation.unknown:
        raise InvalidRecord("message unreadable", f"a response item of type {min(conversation.unknown)!r:.40}")
    first = next((message for message in conversation.messages if message["role"] not in ("system", "developer")), {})
    if first.get("role") == "assistant" and conversation.asked:
        raise InvalidRecord(
            "content was not read",
            f"the user's message {conversation.asked!r:.60} is in an event, and in no item before the agent's",
        )
    identity = text_field(session, "id")
    git = object_field(session, "git")
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            _in_order(conversation.messages),
            id=f"{identity}/{conversation.number}" if identity and conversation.number else identity,
            tools=as_tools(session.get("dynamic_tools")),
            session=identity,
            created=text_field(session, "timestamp"),
            model=conversation.model,
            info={
                **{key: session.get(key) for key in ("cwd", "originator", "cli_version", "source", "forked_from_id")},
                "git_branch": git.get("branch"),
                "git_commit": git.get("commit_hash"),
                "ends": conversation.ends,
                "usage": conversation.usage,
                "left_out": dict(sorted(conversation.left_out.items())),
            },
        ),
    )


def _in_order(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each result after its turn. A call that was interrupted gets the result that Codex shows the model."""
    results = {message["tool_call_id"]: message for message in messages if message["role"] == "tool"}
    called = {call["id"] for message in messages for call in message.get("tool_calls", ())}
    ordered: list[dict[str, Any]] = []
    said = [message for message in messages if message["role"] != "tool" or message["tool_call_id"] not in called]
    for message in said:
        if message["role"] == "assistant" and message["content"] is None and "tool_calls" not in message:
            continue  # thoughts before an interruption
        ordered.append(message)
        for call in message.get("tool_calls", ()):
            aborted = {"role": "tool", "tool_call_id": call["id"], "content": ABORTED}
            if call["id"] in results or message is not said[-1]:
                ordered.append(results.get(call["id"], aborted))
    return ordered


READERS = (Reader(FORMAT, recognises, read, "lines", split=split, continues=continues),)
