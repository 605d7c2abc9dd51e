"""Reads sessions of Claude Code, `~/.claude/projects/*/*.jsonl`, one event a line, linked by `uuid` and `parentUuid`; and its
`stream-json`, whose lines have no links.

The lines of one response share a message id and are one turn. A tool's result belongs to its call wherever its line is.
Lines that the model did not see (progress, snapshots, errors of the API) only link others. A session may hold several
conversations, each of which is a trace: sub-agents (side chains), what follows a compaction, and the branches that
arise where a user goes back to an earlier message.
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
    build_trace,
    ending,
    object_field,
    read_parts,
    text_field,
    tool_call,
    with_ending,
)

FORMAT = "claude_code"
TURNS = ("user", "assistant")
ALONE = {"summary": "leafUuid", "file-history-snapshot": "messageId", "custom-title": "customTitle", "ai-title": "aiTitle"}
USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
SYNTHETIC = "<synthetic>"


def recognises(value: Any) -> bool:
    """Whether this is a line of a session."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if value["type"] in TURNS:
        message = value.get("message")
        if not isinstance(message, dict) or "content" not in message:
            return False
        # An export may have lost the session's id.
        return isinstance(value.get("sessionId"), str) or (message.get("role") == value["type"] and "session_id" not in value)
    # Langfuse's observations have a type and a session, too: SPAN, GENERATION.
    return (isinstance(value.get("sessionId"), str) and value["type"].islower()) or ALONE.get(value["type"]) in value


def recognises_stream(value: Any) -> bool:
    """Whether this is a line of `claude --output-format stream-json`, or of the Agent SDK."""
    if not isinstance(value, dict) or not isinstance(value.get("session_id"), str):
        return False
    if value.get("type") in TURNS:
        return isinstance(value.get("message"), dict) and "content" in value["message"]
    return value.get("type") == "system" and value.get("subtype") == "init" and "tools" in value


def split_stream(lines: Sequence[SessionLine]) -> Iterator[Part]:
    """The conversations of a stream, whose lines have no links: those of a sub-agent name the call that began it."""
    renamed = []
    about: dict[str, Any] = {}
    for line in lines:
        value = line.value
        if value.get("subtype") == "init":
            about = {"version": value.get("claude_code_version"), "cwd": value.get("cwd")}
        parent = value.get("parent_tool_use_id")
        if value["type"] == "stream_event" or (value["type"] == "user" and value.get("isReplay")):
            continue
        side = {"isSidechain": True, "agentId": parent} if isinstance(parent, str) else {}
        renamed.append(line._replace(value={**about, **side, **value, "sessionId": value.get("session_id")}))
    yield from split(renamed)


def continues(value: Any) -> bool:
    """Whether a line of a session's file belongs to it: every object with a type."""
    return isinstance(value, dict) and isinstance(value.get("type"), str)


@dataclass
class _Turn:
    """A user's message, or a response of the model with the results of its calls."""

    line: SessionLine
    parent: _Turn | None
    blocks: list[Any]
    results: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    ended: str = ""
    stands_before_reply: bool = False

    @property
    def role(self) -> str:
        return str(self.line.value["type"])

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [block for block in self.blocks if isinstance(block, dict) and block.get("type") == "tool_use"]


@dataclass
class _Thread:
    """One conversation of a session. `title` and `dropped` (lines by why they were left out) are about the session."""

    id: str
    turns: list[_Turn]
    title: str | None
    dropped: dict[str, int]


def split(lines: Sequence[SessionLine]) -> Iterator[Part]:
    """The conversations of a session, in the order in which they end."""
    session = _Session(lines)
    for thread in session.threads():
        yield Part(thread, thread.turns[0].line.line, [turn.line.value for turn in thread.turns])


class _Session:
    """Builds the tree of turns."""

    def __init__(self, lines: Sequence[SessionLine]) -> None:
        self._by_uuid: dict[str, SessionLine] = {}
        self._before: dict[int, SessionLine] = {}
        self._turn_of_line: dict[int, _Turn] = {}
        self._turn_of_message: dict[tuple[str, str], _Turn] = {}
        self._turn_of_call: dict[str, _Turn] = {}
        self._first_after: dict[tuple[str, int], _Turn] = {}
        self._dropped: Counter[str] = Counter()
        self._title: str | None = None
        self.turns: list[_Turn] = []
        last: dict[str, SessionLine] = {}
        for line in lines:
            lane, uuid = _lane(line.value), line.value.get("uuid")
            if isinstance(uuid, str) and self._by_uuid.setdefault(uuid, line) is not line:
                self._dropped["repeated lines"] += 1
                continue
            if lane in last:
                self._before[line.line] = last[lane]
            self._take(line, lane)
            if isinstance(uuid, str) or line.value["type"] in TURNS:
                last[lane] = line

    def _take(self, line: SessionLine, lane: str) -> None:
        value, message = line.value, line.value.get("message")
        if value["type"] not in TURNS or not isinstance(message, dict):
            is_message = isinstance(message, dict) and "content" in message
            if is_message or (value["type"].startswith("tool_") and {"input", "output"} & value.keys()):
                raise InvalidRecord(
                    "message unreadable", f"a line of type {value['type']!r:.40}, which says or calls something"
                )
            self._title = _title(value) or self._title
            return
        blocks = message["content"] if isinstance(message.get("content"), list) else [message.get("content")]
        if value["type"] == "assistant":
            if value.get("isApiErrorMessage") or message.get("model") == SYNTHETIC:
                self._dropped["errors of the API"] += 1
                return
            self._respond(line, lane, message, blocks)
            return
        results = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
        said = [block for block in blocks if block not in results]
        turn: _Turn | None = None
        for result in results:
            call_id = str(result.get("tool_use_id"))
            turn = self._turn_of_call.get(call_id)
            if turn is None:
                said.append(result)
            else:
                turn.results.setdefault(call_id, result)
        if turn is not None and not said:
            self._turn_of_line[line.line] = turn
        else:
            self._add(_Turn(line, turn or self._parent(line), said))

    def _respond(self, line: SessionLine, lane: str, message: dict[str, Any], blocks: list[Any]) -> None:
        key = (lane, str(message.get("id") or line.value.get("uuid") or line.line))
        turn = self._turn_of_message.get(key)
        if turn is None:
            turn = self._turn_of_message[key] = self._add(_Turn(line, self._parent(line), []))
        turn.blocks = _grown(turn.blocks, blocks)
        turn.usage = object_field(message, "usage") or turn.usage
        turn.ended = ending(message) or turn.ended
        self._turn_of_line[line.line] = turn
        self._turn_of_call.update((str(call.get("id")), turn) for call in turn.calls)

    def _add(self, turn: _Turn) -> _Turn:
        self.turns.append(turn)
        self._first_after.setdefault(_after(turn), turn)
        self._turn_of_line[turn.line.line] = turn
        return turn

    def _parent(self, line: SessionLine) -> _Turn | None:
        """The turn before a line: up the links, over lines that are no turns. A missing link is to the line before."""
        passed: set[int] = set()
        above: SessionLine | None = line
        while above is not None and above.line not in passed:
            passed.add(above.line)
            if above is not line and above.line in self._turn_of_line:
                return self._turn_of_line[above.line]
            above = self._above(above)
        return None

    def _above(self, line: SessionLine) -> SessionLine | None:
        parent = line.value.get("parentUuid")
        if isinstance(parent, str) and parent in self._by_uuid:
            return self._by_uuid[parent]
        begins = parent is None and "parentUuid" in line.value and not _is_reply(line.value)
        return None if begins else self._before.get(line.line)

    def threads(self) -> Iterator[_Thread]:
        """The path to each last response; ids stay the same when the session grows."""
        for turn in self.turns:
            above = turn.parent if turn.role == "assistant" and _says(turn) else None
            while above is not None and not above.stands_before_reply:
                above.stands_before_reply, above = True, above.parent
        for leaf in self.turns:
            if leaf.role == "assistant" and not leaf.stands_before_reply and _says(leaf):
                yield _Thread(self._name(leaf), _path(leaf), self._title, dict(self._dropped))

    def _name(self, leaf: _Turn) -> str:
        """The id of a conversation: the session's, its sub-agent's, and the turn in which it left an earlier one."""
        value = leaf.line.value
        name = str(value.get("sessionId") or "session")
        is_unnamed = bool(value.get("isSidechain")) and not isinstance(value.get("agentId"), str)
        if value.get("isSidechain") and not is_unnamed:
            name += f"/agent-{value['agentId']}"
        path = _path(leaf)
        left = [turn for turn in path if self._first_after[_after(turn)] is not turn or (is_unnamed and turn is path[0])]
        return f"{name}/{left[-1].line.value.get('uuid') or left[-1].line.line}" if left else name


def _grown(known: list[Any], blocks: list[Any]) -> list[Any]:
    """The blocks of a response with those of its next line, which may repeat them, or hold more of a text or call."""
    whole = list(known)
    for position, block in enumerate(blocks):
        earlier = known[position] if position < len(known) else None
        if isinstance(block, dict) and isinstance(earlier, dict) and _goes_on(earlier, block):
            whole[position] = block
        elif block not in whole:
            whole.append(block)
    return whole


def _goes_on(earlier: dict[str, Any], later: dict[str, Any]) -> bool:
    """Whether a block is a later version of another: the same call, or a text that begins with it."""
    if earlier.get("type") != later.get("type"):
        return False
    if later.get("type") == "tool_use":
        return earlier.get("id") == later.get("id")
    texts = [
        next((block[key] for key in ("text", "thinking") if isinstance(block.get(key), str)), "") for block in (earlier, later)
    ]
    return bool(texts[0]) and texts[1].startswith(texts[0])


def _after(turn: _Turn) -> tuple[str, int]:
    """What a turn follows: another turn, or nothing in its chain of lines."""
    return ("", id(turn.parent)) if turn.parent else (_lane(turn.line.value), 0)


def _lane(value: dict[str, Any]) -> str:
    """The chain that a line without links belongs to: the session's, or one sub-agent's."""
    return f"side {value.get('agentId')}" if value.get("isSidechain") else "main"


def _is_reply(value: dict[str, Any]) -> bool:
    content = object_field(value, "message").get("content")
    is_result = isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    )
    return value.get("type") == "assistant" or is_result


def _title(value: dict[str, Any]) -> str | None:
    """The session's title, in lines that hold one."""
    return next((value[key] for key in ("summary", "customTitle", "aiTitle") if isinstance(value.get(key), str)), None)


def _says(turn: _Turn) -> bool:
    """Whether a response has text or calls, not only thoughts."""
    return bool(turn.calls) or any(
        isinstance(block, str) or (isinstance(block, dict) and block.get("type") == "text") for block in turn.blocks
    )


def _path(leaf: _Turn) -> list[_Turn]:
    path, turn = [], leaf
    while True:
        path.append(turn)
        if turn.parent is None:
            return path[::-1]
        turn = turn.parent


def read(value: Any, place: Place) -> Trace:
    """The trace of one conversation.

    Raises:
        InvalidRecord: it cannot be read.
    """
    thread: _Thread = value
    dropped = Counter(thread.dropped)
    messages: list[dict[str, Any]] = []
    for turn in thread.turns:
        added = _messages_of(turn, is_last=turn is thread.turns[-1])
        dropped["calls without a result"] += len(turn.calls) - sum(len(message.get("tool_calls", ())) for message in added)
        messages += added
    responses = [turn for turn in thread.turns if turn.role == "assistant"]
    first, last = thread.turns[0].line.value, thread.turns[-1].line.value
    models = [message["model"] for turn in responses if isinstance((message := turn.line.value["message"]).get("model"), str)]
    usage = {
        key: total
        for key in USAGE
        if (total := sum(turn.usage[key] for turn in responses if isinstance(turn.usage.get(key), int)))
    }
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            id=thread.id if last.get("sessionId") else None,
            session=text_field(last, "sessionId"),
            created=text_field(first, "timestamp"),
            model=models[0] if models else None,
            info={
                "title": thread.title,
                "agent": text_field(last, "agentId"),
                "side_chain": bool(last.get("isSidechain")) or None,
                "compacted": bool(first.get("isCompactSummary")) or None,
                "cwd": last.get("cwd"),
                "git_branch": last.get("gitBranch"),
                "version": last.get("version"),
                "models": sorted(set(models)) if len(set(models)) > 1 else None,
                "usage": usage,
                "left_out": {reason: count for reason, count in sorted(dropped.items()) if count},
            },
        ),
    )


def _messages_of(turn: _Turn, *, is_last: bool) -> list[dict[str, Any]]:
    """A turn and the results of its calls. As in Claude Code, calls that got no result before the next turn are left out."""
    if turn.role == "user":
        content = read_parts([block for block in turn.blocks if block is not None], "\n")
        replies = [{"role": "tool", "tool_call_id": result["id"], "content": result["content"]} for result in content.results]
        return replies if content.text is None and replies else [*replies, {"role": "user", "content": content.text or ""}]
    content = read_parts(
        [block for block in turn.blocks if not isinstance(block, dict) or block.get("type") != "tool_use"], "\n\n"
    )
    calls = [call for call in turn.calls if is_last or str(call.get("id")) in turn.results]
    message: dict[str, Any] = {"role": "assistant", "content": content.text}
    if calls:
        message["tool_calls"] = [tool_call(call.get("id"), call.get("name"), call.get("input")) for call in calls]
    if content.reasoning:
        message["reasoning"] = content.reasoning
    if content.text is None and not calls:
        return []
    replies = []
    for call in calls:
        result = turn.results.get(str(call.get("id")))
        if result is not None:
            text = as_text(_shown(read_parts([result]).results[0]["content"]))
            replies.append({"role": "tool", "tool_call_id": call.get("id"), "name": call.get("name"), "content": text})
    return [*with_ending([message], turn.ended), *replies]


def _shown(content: Any) -> Any:
    """What the model was shown of a result, which iFlow wraps in what its window shows."""
    if not isinstance(content, dict):
        return content
    response = object_field(object_field(object_field(content, "responseParts"), "functionResponse"), "response")
    return next((response[key] for key in ("output", "error") if key in response), content)


READERS = (
    Reader(FORMAT, recognises, read, "lines", split=split, continues=continues),
    Reader(FORMAT, recognises_stream, read, "lines", split=split_stream, continues=continues),
)
