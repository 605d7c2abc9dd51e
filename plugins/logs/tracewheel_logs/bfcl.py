"""Reads rows of the Berkeley Function-Calling Leaderboard: multi-turn results with their log, and scores.

A score's row holds the question, the functions and the answer; score files list failures only, so its outcome is 0. A
result of a single turn holds the answer alone, and is refused.
"""

from __future__ import annotations

import re
from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Trace,
    as_chat,
    as_text,
    as_tools,
    build_trace,
    list_field,
    object_field,
)
from tracewheel_logs.dialogue import Dialogue

FORMAT = "bfcl"
QUERY, STEP = "begin_of_turn_query", re.compile(r"step_\d+")
READ = {"prompt", "inference_log", "result", "model_result", "model_result_raw", "model_result_decoded", "decoded_result"}


def recognises(value: Any) -> bool:
    """Whether this is a row of results or of scores."""
    if not isinstance(value, dict) or "id" not in value:
        return False
    return {"result", "latency", "input_token_count"} <= value.keys() or {"valid", "test_category", "prompt"} <= value.keys()


def read(value: Any, place: Place) -> Trace:
    """The trace of one row.

    Raises:
        InvalidRecord: it holds no question, or cannot be read.
    """
    dialogue, prompt = Dialogue(), object_field(value, "prompt")
    log = [turn for turn in list_field(value, "inference_log") if isinstance(turn, dict) and QUERY in turn]
    if log:
        for turn in log:
            dialogue.extend(as_chat(turn[QUERY]))
            for name, step in turn.items():
                if STEP.fullmatch(name):
                    _step(step, dialogue)
    else:
        questions = list_field(prompt, "question")
        if len(questions) != 1:
            raise InvalidRecord(
                "no messages",
                "the row holds the answer without its question: ingest the multi-turn results with their inference_log "
                "(bfcl generate --include-input-log), or the score files, which hold both",
            )
        dialogue.extend(as_chat(questions[0]))
        answer = next((value[key] for key in ("model_result_raw", "model_result") if value.get(key)), "")
        _answer(answer, dialogue)
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            dialogue.messages(),
            id=as_text(value["id"]),
            task=as_text(value["id"]),
            tools=as_tools(prompt.get("function")),
            outcome=float(value["valid"]) if isinstance(value.get("valid"), bool) else None,
            model=value["model_name"] if isinstance(value.get("model_name"), str) else None,
            info={key: part for key, part in value.items() if key not in READ},
        ),
    )


def _step(step: Any, dialogue: Dialogue) -> None:
    """One answer of the model, and the results of its calls in their order."""
    for message in step if isinstance(step, list) else []:
        if message.get("role") == "assistant":
            dialogue.end_turn()
            _answer(message.get("content"), dialogue)
            if thought := message.get("reasoning_content"):
                dialogue.thought(as_text(thought))
        elif message.get("role") == "tool" and dialogue.messages()[-1]["role"] != "user":
            _result(message, dialogue)


def _answer(answer: Any, dialogue: Dialogue) -> None:
    """Calls as `[{"name": "{arguments}"}]`, or text, in which calls are written as code."""
    if isinstance(answer, list) and all(isinstance(call, dict) for call in answer):
        dialogue.turn["content"] = "" if not answer else None
        for call in answer:
            for name, arguments in call.items():
                dialogue.called(None, name, arguments)
    else:
        dialogue.text(as_text(answer))


def _result(message: dict[str, Any], dialogue: Dialogue) -> None:
    """A result; of calls that the model wrote as code it is what the user shows next, as in the evaluation."""
    turn = next(one for one in reversed(dialogue.messages()) if one["role"] != "tool")
    if turn.get("tool_calls"):
        dialogue.replied(message.get("tool_call_id"), None, message.get("content"))
    else:
        dialogue.said("user", as_text(message.get("content")))


READERS = (Reader(FORMAT, recognises, read),)
