"""Retrieval QA: `search`, `open` and `answer` over documents."""

from __future__ import annotations

import random
import re
import string
from pathlib import Path
from typing import Any

from tracewheel import Count, DataError, Observation, Strict, Task, function_tool
from tracewheel_worlds.retrieval.agent import near_misses, solution
from tracewheel_worlds.retrieval.benchmark_files import read_questions
from tracewheel_worlds.retrieval.library import Library, check_documents, corpus_at, library_of, write_corpus
from tracewheel_worlds.retrieval.stock import desk_of
from tracewheel_worlds.retrieval.tasks import FAMILIES, TIERS, make_task, make_tasks, retrieval_task

SYSTEM_PROMPT = "Answer the question by the documents. Search for names and open what helps. Answer with a name alone."
ECHO_LIMIT = 32


def _tool(name: str, description: str, parameter: str) -> dict[str, Any]:
    return function_tool(name, description, {parameter: {"type": "string"}})


TOOLS = [
    _tool("search", "Titles and ids of the documents that fit best.", "query"),
    _tool("open", "Read a document.", "id"),
    _tool("answer", "Answer the question. This ends the work.", "text"),
]
PARAMETERS = {tool["function"]["name"]: next(iter(tool["function"]["parameters"]["properties"])) for tool in TOOLS}


class RetrievalArgs(Strict):
    """Where documents come from, and what the tools show of them.

    Attributes:
        corpus: A JSONL file of documents (`id`, `title`, `text`), for tasks that bring none along.
        corpora: The folder for the documents of benchmark files, as `SHA-256.jsonl`; relative to the working directory.
        pooled: Search all documents of a benchmark file instead of the question's own.
        results: How many documents a search shows at most.
        longest: How many characters of a document `open` shows at most.
    """

    corpus: str | None = None
    corpora: str = "data/corpora"
    pooled: bool = False
    results: Count = 5
    longest: Count = 4000


class RetrievalEnvironment:
    """A question about documents, which the agent searches and opens.

    >>> from tracewheel_worlds.retrieval.tasks import retrieval_task
    >>> documents = [{"id": "D1", "title": "Ada", "text": "Born in 1930 in Elmswell. Works for Lortex."}]
    >>> desk = RetrievalEnvironment()
    >>> desk.reset(retrieval_task("Where was Ada born?", {"documents": documents}, {"answers": ["Elmswell"]}))
    >>> desk.step("search", {"query": "Ada"}).text
    'Ada [D1]'

    A task's `initial_state` has its `documents`; or `corpus`, the digest of a file in the folder `corpora`, and the ids of
    its own documents there; or nothing, for a task about the file of the argument `corpus`. Its `goal` has the accepted
    `answers`.

    State: `{"searches": [query], "opened": [id], "answer": str or None}`. The first answer ends the episode and stands.
    """

    kind = "retrieval"
    tool_threads = 0  # calls take no time
    verifiers = ("answer_match",)
    reaches = True
    system_prompt = SYSTEM_PROMPT
    families = FAMILIES
    tiers = TIERS
    Args = RetrievalArgs

    def __init__(self, args: RetrievalArgs | None = None) -> None:
        self._args = args or RetrievalArgs()
        self._library: Library = library_of([])
        self._searches: list[str] = []
        self._opened: list[str] = []
        self._answer: str | None = None

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        state, goal = logged.get("initial_state") or {}, logged.get("goal")
        check_state(state)
        answers = goal.get("answers") if isinstance(goal, dict) else None
        if not isinstance(answers, list) or not answers or not all(isinstance(one, str) and one.strip() for one in answers):
            raise DataError("'goal.answers' needs a list of accepted answers, none of them empty")
        return retrieval_task(prompt, state, goal)  # type: ignore[arg-type]  # checked above

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """Questions about random worlds of all desks."""
        return make_tasks(n, seed)

    def tasks_from(self, path: Path) -> list[Task]:
        """The questions of a file of NQ, HotpotQA or MuSiQue; their paragraphs are written to the folder `corpora`.

        Raises:
            DataError: a record is broken; the message names file and line.
        """
        questions, documents = read_questions(path)
        digest = write_corpus(documents, Path(self._args.corpora)) if documents else ""
        return [
            retrieval_task(one.question, {"corpus": digest, "documents": one.documents} if one.documents else {}, one.goal)
            for one in questions
        ]

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Tasks of the same family and desk, of the same tier or the one below; none for a question of a file."""
        hops = task.goal.get("hops")
        desk = desk_of(hops[0]) if hops else None
        if desk is None:
            return []
        rng = random.Random(f"variants-{task.id}-{seed}")
        return [make_task(task.family, rng.randint(max(1, task.tier - 1), task.tier), desk, rng) for _ in range(n)]

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The searches and openings that lead to the answer; for a question of a file the answer alone."""
        return solution(task)

    def near_misses(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Right in a sentence, said instead of answered, the name of another hop, and the like."""
        return near_misses(task)

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def reset(self, task: Task) -> None:
        self._library = self._library_for(task)
        self._searches, self._opened, self._answer = [], [], None

    def outcome(self, task: Task, state: dict[str, Any]) -> Any:
        """The answer's words in order, without case, punctuation and articles; how it was found does not count."""
        if not isinstance(state["answer"], str):
            return [state["answer"]]
        words = re.sub(rf"[{re.escape(string.punctuation)}]", "", state["answer"].lower()).split()
        return " ".join(word for word in words if word not in ("a", "an", "the"))

    def snapshot(self) -> dict[str, Any]:
        return {"searches": list(self._searches), "opened": list(self._opened), "answer": self._answer}

    def restore(self, task: Task, state: dict[str, Any]) -> None:
        if state.keys() != {"searches", "opened", "answer"} or not (
            _are_texts(state["searches"]) and _are_texts(state["opened"])
        ):
            raise DataError("a snapshot of retrieval has 'searches' and 'opened', lists of texts, and 'answer'")
        if not isinstance(state["answer"], str | None):
            raise DataError("'answer' of a snapshot of retrieval is a text, or null")
        self.reset(task)
        self._searches, self._opened, self._answer = list(state["searches"]), list(state["opened"]), state["answer"]

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        if self._answer is not None:
            return Observation("error: the question is answered", error=True, done=True)
        parameter = PARAMETERS.get(tool)
        if parameter is None:
            return _error(f"no tool named {tool[:ECHO_LIMIT]}")
        if args.keys() != {parameter} or not isinstance(args[parameter], str):
            return _error(f"arguments must be {parameter}, a text")
        match tool:
            case "search":
                return self._search(args[parameter])
            case "open":
                return self._open(args[parameter])
        self._answer = args[parameter]
        return Observation("answered", done=True)

    def _search(self, query: str) -> Observation:
        self._searches.append(query)
        found = self._library.search(query, self._args.results)
        if not found:
            return Observation("nothing found")
        return Observation("\n".join(f"{document['title']} [{document['id']}]" for document in found))

    def _open(self, number: str) -> Observation:
        document = self._library.by_id.get(number)
        if document is None:
            return _error(f"no document {number[:ECHO_LIMIT]}")
        self._opened.append(number)
        return Observation(document["text"][: self._args.longest])

    def _library_for(self, task: Task) -> Library:
        """What can be searched in an episode of a task.

        Raises:
            DataError: its documents are missing.
        """
        state = task.initial_state
        if not state.get("documents"):
            if self._args.corpus is None:
                raise DataError(f"task {task.id} brings no documents: name a JSONL file as environment.args.corpus")
            return corpus_at(self._args.corpus).whole()
        if "corpus" not in state:
            return library_of(state["documents"])
        corpus = corpus_at(Path(self._args.corpora) / f"{state['corpus']}.jsonl")
        if corpus.digest != state["corpus"]:
            raise DataError(f"corpus {corpus.path} is not what it was ({corpus.digest}): make the tasks again from their file")
        return corpus.whole() if self._args.pooled else corpus.part(state["documents"])


def check_state(state: Any) -> None:
    """Check `initial_state`.

    Raises:
        DataError: it is neither empty nor has documents of its own or ids of a corpus; the message says what is wrong.
    """
    if not isinstance(state, dict):
        raise DataError("'initial_state' is an object")
    if "corpus" in state:
        if not isinstance(state["corpus"], str) or not _are_texts(state.get("documents")):
            raise DataError("'initial_state' with a 'corpus', a digest, needs 'documents', a list of ids in it")
    elif state.get("documents"):
        check_documents(state["documents"], "'initial_state.documents'")


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _error(text: str) -> Observation:
    return Observation(f"error: {text}", error=True)
