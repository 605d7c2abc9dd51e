"""Files of question-answering benchmarks as questions with their paragraphs: NQ, HotpotQA and MuSiQue.

| file | answers | paragraphs |
|---|---|---|
| NQ, as nq-open | `answer`, a list (also `answers` or `golden_answers`, as others write it) | none |
| HotpotQA | `answer` | `context`: `[title, [sentence]]`, or an object with `title` and `sentences` |
| MuSiQue | `answer` and `answer_aliases` | `paragraphs`: `title` and `paragraph_text` (also `text`) |

A file is a JSON list or JSON lines; which benchmark a record is of it says itself. Supporting facts and
decompositions are not kept: they would tell where to look.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel import DataError, parse_json, read_json_at, read_text
from tracewheel_worlds.retrieval.library import Document

LISTS_OF_ANSWERS = ("golden_answers", "answers", "answer")
LEVELS = {"easy": 1, "medium": 2, "hard": 3}


@dataclass(frozen=True)
class Question:
    """A question of a file: the ids of its own documents, and the goal with the accepted answers."""

    question: str
    documents: list[str]
    goal: dict[str, Any]


def read_questions(path: Path) -> tuple[list[Question], list[Document]]:
    """The questions of a file, and their documents, each once.

    Unanswerable questions of MuSiQue are left out: an empty answer would solve them.

    Raises:
        DataError: a record is broken; the message names file and line and says what is missing.
    """
    questions: list[Question] = []
    ids: dict[tuple[str, str], str] = {}
    for line, record in _records(path):
        try:
            if isinstance(record, dict) and record.get("answerable") is False:
                continue
            questions.append(_question(record, ids))
        except ValueError as error:
            raise DataError(f"{path}, line {line}: {error}") from error
    documents = [{"id": number, "title": title, "text": text} for (title, text), number in ids.items()]
    return questions, documents


def _question(record: Any, ids: dict[tuple[str, str], str]) -> Question:
    """A record's question; its paragraphs get ids in the order in which they first appear in the file."""
    if not isinstance(record, dict):
        raise ValueError("a record is an object")
    question = record.get("question")
    if not isinstance(question, str) or not question.strip():
        raise ValueError("'question' needs a text")
    goal = {"answers": _answers(record), **_kind_of(record)}
    documents = [ids.setdefault(paragraph, f"d{len(ids) + 1}") for paragraph in _paragraphs(record)]
    return Question(question, list(dict.fromkeys(documents)), goal)


def _answers(record: dict[str, Any]) -> list[str]:
    """The accepted answers, each once."""
    found = next((record[name] for name in LISTS_OF_ANSWERS if name in record), None)
    answers = [found, *record.get("answer_aliases", ())] if isinstance(found, str) else found
    if not isinstance(answers, list) or not answers or not all(isinstance(one, str) and one.strip() for one in answers):
        raise ValueError("'answer' needs a text, or a list of texts, none of them empty")
    return list(dict.fromkeys(answers))


def _kind_of(record: dict[str, Any]) -> dict[str, Any]:
    """Family and tier: type and level of HotpotQA, hops of MuSiQue."""
    if isinstance(record.get("question_decomposition"), list) and record["question_decomposition"]:
        hops = len(record["question_decomposition"])
        return {"family": f"musique_{hops}_hops", "tier": hops}
    if isinstance(record.get("type"), str) and "context" in record:
        return {"family": f"hotpotqa_{record['type']}", "tier": LEVELS.get(str(record.get("level")), max(LEVELS.values()))}
    return {"family": "question", "tier": 1}


def _paragraphs(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The title and text of each paragraph."""
    if "paragraphs" in record:
        if not isinstance(record["paragraphs"], list):
            raise ValueError("'paragraphs' needs a list")
        for number, paragraph in enumerate(record["paragraphs"]):
            own = paragraph if isinstance(paragraph, dict) else {}
            yield _pair(
                own.get("title"),
                own.get("paragraph_text", own.get("text")),
                f"'paragraphs[{number}]' needs 'title' and 'paragraph_text'",
            )
    elif "context" in record:
        context = record["context"]
        if isinstance(context, dict) and context.keys() >= {"title", "sentences"}:
            context = _pairs(context)
        if not isinstance(context, list):
            raise ValueError("'context' needs a list")
        for number, entry in enumerate(context):
            wrong = f"'context[{number}]' needs a title and a list of sentences"
            if not isinstance(entry, list | tuple) or len(entry) != 2 or not isinstance(entry[1], list):
                raise ValueError(wrong)
            if not all(isinstance(sentence, str) for sentence in entry[1]):
                raise ValueError(wrong)
            yield _pair(entry[0], "".join(entry[1]).strip(), wrong)


def _pairs(context: dict[str, Any]) -> list[list[Any]]:
    """A context of two lists as a list of pairs."""
    titles, texts = context["title"], context["sentences"]
    if not isinstance(titles, list) or not isinstance(texts, list) or len(titles) != len(texts):
        raise ValueError("'context' needs as many 'sentences' as titles")
    return [[title, own] for title, own in zip(titles, texts, strict=True)]


def _pair(title: Any, text: Any, wrong: str) -> tuple[str, str]:
    if not isinstance(title, str) or not isinstance(text, str):
        raise ValueError(wrong)
    return title, text


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    """Each record with the number of its line: of a JSON list, or of JSON lines."""
    text = read_text(path)
    if text.lstrip()[:1] == "[":
        yield from _list_records(path, text)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, parse_json(line)
            except ValueError as error:
                raise DataError(f"{path}, line {number}: no JSON ({error})") from error


def _list_records(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """The records of a JSON list, one after another, so that a broken one can be named."""
    at, line, counted = text.index("[") + 1, 1, 0
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        line, counted = line + text.count("\n", counted, at), at
        if at >= len(text):
            raise DataError(f"{path}, line {line}: the list has no end")
        if text[at] == "]":
            return
        try:
            record, at = read_json_at(text, at)
        except (ValueError, json.JSONDecodeError) as error:
            raise DataError(f"{path}, line {line}: no JSON ({error})") from error
        yield line, record
