"""Reads streams of the Agent Client Protocol, as clients and Grok's `updates.jsonl` log them: JSON-RPC messages, one a line.

Text comes in chunks. A tool has the name that its agent gives in `_meta`, else its kind (`read`, `execute`), as titles are for
people and differ from call to call. A file may hold one session only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tracewheel import (
    InvalidRecord,
    JsonPath,
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
)
from tracewheel_logs.dialogue import Dialogue

FORMAT = "acp"
UPDATE, PROMPT = "session/update", "session/prompt"
NAMES = tuple(JsonPath(path) for path in ('_meta."x.ai/tool".name', "_meta.claudeCode.toolName", "kind", "title"))
ENDED = ("completed", "failed")


def recognises(value: Any) -> bool:
    """Whether this is an update of a session, or a prompt."""
    if not isinstance(value, dict) or not str(value.get("method")).endswith((UPDATE, PROMPT)):
        return False
    params = object_field(value, "params")
    return "sessionId" in params and (isinstance(params.get("update"), dict) or isinstance(params.get("prompt"), list))


def continues(value: Any) -> bool:
    """Whether a line may stand among a session's: requests, replies and updates of the agent's own."""
    return isinstance(value, dict) and ("method" in value or "jsonrpc" in value)


def split(lines: Sequence[SessionLine]) -> Iterator[Part]:
    """The session of a file.

    Raises:
        InvalidRecord: the file holds several.
    """
    told = [line for line in lines if recognises(line.value)]
    if len({line.value["params"]["sessionId"] for line in told}) > 1:
        raise InvalidRecord("unknown format", "updates of several sessions: write a file for each params.sessionId")
    yield Part([line.value for line in told], told[0].line, [line.value for line in told])


def read(value: Any, place: Place) -> Trace:
    """The trace of a session.

    Raises:
        InvalidRecord: it cannot be read.
    """
    # A client that logs its prompts may log the agent's echo of them, too.
    has_prompts = any(line["method"] == PROMPT for line in value)
    dialogue, heard = Dialogue(), list[str]()
    calls: dict[Any, dict[str, Any]] = {}
    waiting: list[dict[str, Any]] = []
    for line in value:
        update = line["params"].get("update") or {"sessionUpdate": PROMPT, "content": line["params"].get("prompt")}
        kind = update.get("sessionUpdate")
        if heard and kind != "user_message_chunk":
            dialogue.said("user", "".join(heard))
            heard = []
        if kind == PROMPT or (kind == "user_message_chunk" and not has_prompts):
            _reply(waiting, dialogue)
            heard.append(_text(update.get("content")))
        elif kind in ("agent_message_chunk", "agent_thought_chunk"):
            _reply(waiting, dialogue)
            (dialogue.text if kind == "agent_message_chunk" else dialogue.thought)(_text(update.get("content")))
        elif kind in ("tool_call", "tool_call_update"):
            call = calls.setdefault(update.get("toolCallId"), {})
            if not call:
                waiting.append(call)
            # What is said first of a call counts, but for its end and what it gave.
            last = {key: update[key] for key in ("status", "content", "rawOutput") if update.get(key)}
            call |= {key: part for key, part in update.items() if not call.get(key)} | last
    if heard:
        dialogue.said("user", "".join(heard))
    _reply(waiting, dialogue)
    session = next(line["params"]["sessionId"] for line in value)
    created = next((line["timestamp"] for line in value if line.get("timestamp")), None)
    return build_trace(FORMAT, place, RawTrace(dialogue.messages(), id=session, session=session, info={"created": created}))


def _reply(waiting: list[dict[str, Any]], dialogue: Dialogue) -> None:
    """Add the calls of a turn, then what those that ended gave."""
    for call in waiting:
        call["name"] = next((name for path in NAMES if isinstance(name := path.get(call), str) and name), None)
        dialogue.called(call.get("toolCallId"), call["name"], call.get("rawInput"))
    for call in waiting:
        if call.get("status") in ENDED:
            said = call.get("content") or call.get("rawOutput")
            dialogue.replied(call.get("toolCallId"), call["name"], _text(said) if isinstance(said, list) else said)
    waiting.clear()


def _text(content: Any) -> str:
    """The text of content blocks; of what is none, such as a difference between files, its JSON."""
    blocks = content if isinstance(content, list) else [content]
    inner = [
        block.get("content", block) if isinstance(block, dict) and block.get("type") == "content" else block for block in blocks
    ]
    return "\n".join(
        as_text({key: part for key, part in block.items() if key != "type"})
        if isinstance(block, dict) and block.get("type") in ("diff", "terminal")
        else read_parts(block).text or ""
        for block in inner
    )


READERS = (Reader(FORMAT, recognises, read, "lines", split=split, continues=continues),)
