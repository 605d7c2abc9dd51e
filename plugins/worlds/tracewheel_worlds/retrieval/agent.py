"""The scripted agent of retrieval QA: the known solution of a task. It is never shown to a policy in training."""

from __future__ import annotations

from typing import Any

from tracewheel import TEXT_TURN, Task
from tracewheel_worlds.retrieval.tasks import document_of

Call = tuple[str, dict[str, Any]]


def solution(task: Task) -> list[Call]:
    """Search for each document on the way and open it, then answer. Where the way is not known, just the answer."""
    found = [call for title in task.goal.get("hops", ()) for call in look(task, title)]
    return [*found, answer(task.goal["answers"][0])]


def look(task: Task, title: str) -> list[Call]:
    """Search for a document by its title, and open it."""
    return [search(title), ("open", {"id": document_of(task.initial_state["documents"], title)["id"]})]


def search(query: str) -> Call:
    return "search", {"query": query}


def answer(text: str) -> Call:
    return "answer", {"text": text}


def near_misses(task: Task) -> dict[str, list[Call]]:
    """Calls that come close, by what is wrong with them. Case, punctuation and articles are not enough to be wrong."""
    *found, (_, last) = solution(task)
    right = last["text"]
    misses = {
        "longer_sentence": [*found, answer(f"It is {right}, as far as I know.")],
        "said_not_answered": [*found, (TEXT_TURN, {"text": right})],
        "half_done": found,
        "empty": [*found, answer("")],
        "only_an_article": [*found, answer("the")],
        "wrong_type": [*found, ("answer", {"text": [right]})],
        "wrong_tool": [*found, search(right)],
    }
    wrong = task.goal.get("wrong")
    if wrong is not None:
        misses |= {
            "other_hop": [*found, answer(wrong)],
            "answered_twice": [*found, answer(wrong), answer(right)],
            "both": [*found, answer(f"{right}, {wrong}")],
        }
    return misses
