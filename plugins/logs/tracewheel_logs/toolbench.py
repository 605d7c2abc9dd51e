"""Reads ToolBench's answers: `{"answer_generation": {"train_messages", "function", …}, "tree", …}`.

`train_messages` holds the path to the answer once for each of its steps; the longest is the conversation. `win` says
that an answer was given, not that it is right: it is kept in `info`.
"""

from __future__ import annotations

from typing import Any

from tracewheel import InvalidRecord, Place, RawTrace, Reader, Trace, as_tools, build_trace, list_field, openai_messages

FORMAT = "toolbench"
KEPT = ("query_count", "total_tokens", "final_answer", "finish_type", "valid_data")


def recognises(value: Any) -> bool:
    """Whether this is the answer to one instruction."""
    answer = value.get("answer_generation") if isinstance(value, dict) else None
    return isinstance(answer, dict) and ("train_messages" in answer or "tree" in value)


def read(value: Any, place: Place) -> Trace:
    """The trace of one answer.

    Raises:
        InvalidRecord: it cannot be read.
    """
    answer = value["answer_generation"]
    paths = [path for path in list_field(answer, "train_messages") if isinstance(path, list)]
    if not any(paths):
        raise InvalidRecord("no messages", "no answer was found: 'train_messages' is empty")
    info = {key: answer[key] for key in KEPT if key in answer} | {
        "win": value.get("win"),
        "settings": value.get("forward_args"),
    }
    tools = as_tools(answer.get("function"))
    return build_trace(FORMAT, place, RawTrace(openai_messages(max(paths, key=len)), tools=tools, info=info))


READERS = (Reader(FORMAT, recognises, read),)
