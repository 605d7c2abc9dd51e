"""Reads logs of Inspect: JSON, and `.eval` archives, from which each sample comes with the archive's header.

A sample is a trace; its epochs are attempts at one task, `TASK/SAMPLE`. Targets, choices and metadata stay out of the messages.
A sample that ended with an error has no outcome, whatever its scores say.
"""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import orjson

from tracewheel import (
    Content,
    Part,
    Piece,
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    as_text,
    as_tools,
    build_trace,
    ending,
    list_field,
    most_expanded,
    object_field,
    read_parts,
    text_field,
    tool_call,
    with_ending,
)
from tracewheel_logs.scores import LoggedScore, judged_of, outcome_of, scores_info

FORMAT = "inspect"
SUFFIX = ".eval"
HEADERS = ("header.json", "_journal/start.json")
ZSTANDARD = 93
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
ATTACHMENT = "attachment://"
KEPT = ("epoch", "target", "choices", "metadata", "limit", "error", "total_time")
# What a broken archive raises: its directory, its decompressors, or a password.
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, ValueError, RuntimeError, EOFError, OSError)
LOCAL_HEADER = struct.Struct("<26xHH")


def recognises(value: Any) -> bool:
    """Whether this is a log: what was evaluated, and its samples."""
    evaluated = value.get("eval") if isinstance(value, dict) else None
    return isinstance(evaluated, dict) and isinstance(evaluated.get("task"), str) and "model" in evaluated


def split(value: dict[str, Any]) -> Iterator[Part]:
    """The samples of a log."""
    for sample in list_field(value, "samples"):
        yield Part((value["eval"], sample), None, {"eval": value["eval"], "samples": [sample]})


def read(value: Any, place: Place) -> Trace:
    """The trace of one sample.

    Raises:
        InvalidRecord: it cannot be read.
    """
    evaluated, sample = value
    attached = object_field(sample, "attachments") or object_field(object_field(sample, "transcript"), "content")
    messages = [_message(message, attached) for message in list_field(sample, "messages")]
    if messages and messages[-1].get("role") == "assistant":
        messages = with_ending(messages, ending(*list_field(object_field(sample, "output"), "choices")[:1]))
    scores = _scores(sample, evaluated)
    identity = f"{evaluated.get('task_id') or evaluated['task']}/{sample.get('id')}/{sample.get('epoch')}"
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            id=text_field(sample, "uuid") or identity,
            tools=_tools(sample, attached),
            created=text_field(sample, "started_at") or text_field(evaluated, "created"),
            model=text_field(evaluated, "model"),
            outcome=None if sample.get("error") else _outcome(scores),
            task=f"{evaluated['task']}/{sample.get('id')}",
            info={
                **{key: _shown(sample.get(key), attached) for key in KEPT},
                "eval": {
                    key: evaluated.get(key) for key in ("task", "run_id", "eval_id", "created", "dataset") if key in evaluated
                },
                "usage": sample.get("model_usage"),
                **scores_info(scores),
                "judged": _judged(scores),
            },
        ),
    )


def _message(message: Any, attached: dict[str, Any]) -> Any:
    if not isinstance(message, dict):
        return message
    content = _content(_shown(message.get("content"), attached))
    error = object_field(message, "error")
    read_as: dict[str, Any] = {"role": message.get("role"), "content": content.text}
    if message.get("role") == "tool":
        # As Inspect does: of a failed call the model sees the error.
        text = error["message"] if isinstance(error.get("message"), str) else content.text or ""
        read_as |= {"content": text, "tool_call_id": message.get("tool_call_id")}
        return read_as | ({"name": message["function"]} if isinstance(message.get("function"), str) else {})
    calls = [call for call in list_field(message, "tool_calls") if isinstance(call, dict)]
    if calls:
        read_as["content"] = content.text or None
        read_as["tool_calls"] = [
            tool_call(call.get("id"), call.get("function"), _shown(call.get("arguments"), attached)) for call in calls
        ]
    if content.reasoning and message.get("role") == "assistant":
        read_as["reasoning"] = content.reasoning
    return read_as


def _content(content: Any) -> Content:
    """A message's content; thoughts hold their text under `reasoning`."""
    if not isinstance(content, list):
        return read_parts(content)
    parts = [
        {"type": "thinking", "thinking": part.get("summary") if part.get("redacted") else part.get("reasoning")}
        if isinstance(part, dict) and part.get("type") == "reasoning"
        else part
        for part in content
    ]
    return read_parts(parts)


def _shown(value: Any, attached: dict[str, Any]) -> Any:
    """A value with its attachments in their places; long texts are stored apart and once."""
    if isinstance(value, str):
        found = attached.get(value.removeprefix(ATTACHMENT)) if value.startswith(ATTACHMENT) else None
        return value if found is None else found
    if isinstance(value, list):
        return [_shown(part, attached) for part in value]
    if isinstance(value, dict):
        return {key: _shown(part, attached) for key, part in value.items()}
    return value


def _tools(sample: dict[str, Any], attached: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools of the first model call that has some."""
    for event in list_field(sample, "events"):
        if isinstance(event, dict) and event.get("event") == "model" and list_field(event, "tools"):
            return as_tools(_shown(event["tools"], attached))
    return []


def _scores(sample: dict[str, Any], evaluated: dict[str, Any]) -> list[LoggedScore]:
    scores = object_field(sample, "scores")
    if not scores and isinstance(sample.get("score"), dict):
        names = [scorer.get("name") for scorer in list_field(evaluated, "scorers") if isinstance(scorer, dict)]
        scores = {str(names[0]) if names else "score": sample["score"]}
    return [
        LoggedScore(name, _number(score.get("value")), _judge(name, score), as_text(score.get("value")))
        for name, score in scores.items()
        if isinstance(score, dict)
    ]


def _number(value: Any) -> Any:
    """A score as Inspect's metrics count it: C, P, I and N are letters; NaN is unscored."""
    if isinstance(value, str):
        try:
            return LETTERS[value] if value in LETTERS else float(value)
        except ValueError:
            return value
    return None if value != value else value


def _judge(name: str, score: dict[str, Any]) -> str:
    """Who gave a score: a person who edited it, a model that grades, or else a program."""
    edits = [edit for edit in list_field(score, "history") if isinstance(edit, dict) and edit.get("provenance")]
    if edits:
        return "person"
    return "model" if "model_graded" in name or "grading" in object_field(score, "metadata") else ""


def _outcome(scores: list[LoggedScore]) -> float | None:
    """The outcome: the only score by a program, or what all of them agree on, or the one that is named as an outcome."""
    numbers = {
        float(score.value)
        for score in scores
        if not score.judge and isinstance(score.value, int | float) and score.value == score.value
    }
    return numbers.pop() if len(numbers) == 1 else outcome_of(scores)


def _judged(scores: list[LoggedScore]) -> float | None:
    """A judge's score: a scorer of Inspect is about the whole sample, whatever its name. A person's comes before a model's."""
    for judge in ("person", "model"):
        shares = {
            float(score.value)
            for score in scores
            if score.judge == judge and isinstance(score.value, int | float) and 0 <= score.value <= 1
        }
        if shares:
            return shares.pop() if len(shares) == 1 else judged_of(scores)
    return None


def eval_pieces(path: Path, largest: int, expansion: int) -> Iterator[Piece]:
    """The samples of an `.eval` archive as logs of one sample each; one is in memory at a time.

    An archive says how large its members are, and no more of one is read.

    Raises:
        OSError: the file cannot be read.
    """
    number, left = 0, most_expanded(path, expansion)
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            names = archive.namelist()
            header = next((name for name in HEADERS if name in names), None)
            if header and archive.getinfo(header).file_size > largest:
                raise zipfile.BadZipFile
            about = orjson.loads(_member(archive, file, header)) if header else None
            evaluated = about.get("eval") if isinstance(about, dict) else None
            start = b'{"eval":' + orjson.dumps(evaluated) + b',"samples":['
            for name in names:
                if name.startswith("samples/") and name.endswith(".json"):
                    number += 1
                    at, size = archive.getinfo(name).header_offset, archive.getinfo(name).file_size
                    left -= size
                    if left < 0:
                        yield Piece(b"", number, at, 0, "expands too far", True)
                        return
                    if size > largest:
                        yield Piece(b"", number, at, 0, "too large")
                        continue
                    yield Piece(start + _member(archive, file, name) + b"]}", number, at)
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        yield Piece(b"", number + 1, 0, 0, "compression damaged", True)


def _member(archive: zipfile.ZipFile, file: IO[bytes], name: str) -> bytes:
    """A member's bytes. Newer archives use Zstandard, which Python's library does not read before 3.14."""
    info = archive.getinfo(name)
    if info.compress_type != ZSTANDARD:
        return archive.read(name)
    import pyarrow

    file.seek(info.header_offset)
    length, extra = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    file.seek(length + extra, 1)
    packed = file.read(info.compress_size)
    return bytes(pyarrow.decompress(packed, decompressed_size=info.file_size, codec="zstd", asbytes=True))


READERS = (Reader(FORMAT, recognises, read, signs=Signs.NAMED, split=split),)
