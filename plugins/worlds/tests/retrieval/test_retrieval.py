"""Retrieval QA: what the tools show, which documents are found, generated questions, corpora, and what a log must have."""

import json
import random
from collections import Counter

import pytest

from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.kind_table import give
from tracewheel.environments import make_environment
from tracewheel_worlds.retrieval.agent import look, solution
from tracewheel_worlds.retrieval.environment import RetrievalArgs, RetrievalEnvironment
from tracewheel_worlds.retrieval.library import Library, corpus_at, write_corpus
from tracewheel_worlds.retrieval.stock import DESKS, desk_of, names_of
from tracewheel_worlds.retrieval.tasks import FAMILIES, TIERS, make_task, make_tasks, retrieval_task

DOCUMENTS = [
    {"id": "D1", "title": "Lortex", "text": "Founded by Ines. Based in Elmswell."},
    {"id": "D2", "title": "Ines", "text": "Born in 1950 in Thornley. Works for Lortex."},
    {"id": "D3", "title": "Thornley", "text": "Lies in Estmark. Twin town of Elmswell."},
]
GOAL = {"answers": ["Estmark"]}


@pytest.fixture
def desk():
    environment = RetrievalEnvironment()
    environment.reset(retrieval_task("In which country was Ines born?", {"documents": DOCUMENTS}, GOAL))
    return environment


@pytest.mark.parametrize(
    ("tool", "args", "text", "error"),
    [
        ("search", {"query": "Ines"}, "Lortex [D1]\nInes [D2]", False),
        ("search", {"query": "INES born, where?"}, "Ines [D2]\nLortex [D1]", False),
        ("search", {"query": "Atlantis"}, "nothing found", False),
        ("search", {"query": ""}, "nothing found", False),
        ("open", {"id": "D3"}, "Lies in Estmark. Twin town of Elmswell.", False),
        ("open", {"id": "Thornley"}, "error: no document Thornley", True),
        ("open", {"name": "D3"}, "error: arguments must be id, a text", True),
        ("search", {"query": ["Ines"]}, "error: arguments must be query, a text", True),
        ("google", {"query": "Ines"}, "error: no tool named google", True),
    ],
)
def test_what_the_tools_reply(desk, tool, args, text, error):
    observation = desk.step(tool, args)
    assert (observation.text, observation.error, observation.done) == (text, error, False)


def test_the_first_answer_stands(desk):
    assert desk.step("answer", {"text": "Thornley"}).done
    again = desk.step("answer", {"text": "Estmark"})
    assert again.error and again.done
    assert desk.snapshot()["answer"] == "Thornley"


def test_nothing_of_the_goal_is_in_a_snapshot_or_an_observation(desk):
    shown = [desk.step("search", {"query": "Ines"}).text, desk.step("open", {"id": "D2"}).text, json.dumps(desk.snapshot())]
    assert not any("Estmark" in text for text in shown)


def test_search_agrees_with_bm25_worked_out_by_hand():
    """Lucene's formula with k1 1.5, b 0.75: "rare" is in one of three documents, "common" in two, one of them short."""
    texts = ["rare common words in a longer text", "common short", "nothing of it"]
    library = Library([{"id": str(n), "title": "", "text": text} for n, text in enumerate(texts)])
    assert [one["id"] for one in library.search("common", 5)] == ["1", "0"]
    assert [one["id"] for one in library.search("rare common", 5)] == ["0", "1"]
    assert [one["id"] for one in library.search("rare common", 1)] == ["0"]
    assert Library([]).search("x", 5) == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tier", TIERS)
def test_generated_questions_hide_their_answers(family, tier):
    rng = random.Random(f"{family}-{tier}")
    for desk in range(DESKS):
        task = make_task(family, tier, desk, rng)
        (answer,) = task.goal["answers"]
        assert (task.family, task.tier) == (family, tier)
        assert answer not in task.prompt and task.goal["wrong"] != answer
        names = {name for name in names_of(desk) if name in json.dumps(task.initial_state)}
        assert names and {desk_of(name) for name in names} == {desk}
        # Nobody who stops before the last document has read the answer where it counts.
        environment = RetrievalEnvironment()
        environment.reset(task)
        read = [environment.step(*call).text for call in solution(task)[:-1]]
        assert answer in read[-1] or family == "comparison"


def test_desks_share_no_name():
    counts = Counter(name for desk in range(DESKS) for name in names_of(desk))
    assert set(counts.values()) == {1} and len(counts) == 240


def test_variants_are_of_the_same_desk_and_no_harder():
    environment, task = RetrievalEnvironment(), make_task("bridge", 3, 4, random.Random(1))
    variants = environment.variants(task, 20, 7)
    assert [one.id for one in variants] == [one.id for one in environment.variants(task, 20, 7)]
    assert {desk_of(one.goal["hops"][0]) for one in variants} == {4} and {one.tier for one in variants} == {2, 3}
    assert environment.variants(retrieval_task("Who?", {"documents": DOCUMENTS}, GOAL), 3, 0) == []


def test_a_corpus_file_serves_tasks_without_documents(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(document | {"url": "x"}) + "\n" for document in DOCUMENTS))
    kind = json.dumps({"kind": "retrieval", "args": {"corpus": str(path), "results": 1, "longest": 8}})
    environment = make_environment(give(kind))
    task = environment.task_from_log("In which country was Ines born?", {"goal": GOAL})
    assert json.loads(task.environment) == json.loads(kind)
    environment.reset(task)
    assert environment.step("search", {"query": "Ines"}).text == "Lortex [D1]"
    assert environment.step("open", {"id": "D2"}).text == "Born in "
    with pytest.raises(DataError, match="brings no documents"):
        RetrievalEnvironment().reset(task)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": "D9", "title": "x"}', "a document needs"),
        ("{", "no JSON"),
        (json.dumps(DOCUMENTS[0]), "a second document 'D1'"),
    ],
)
def test_a_broken_corpus_is_named_by_file_and_line(tmp_path, line, says):
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps(DOCUMENTS[0]) + "\n\n" + line + "\n")
    with pytest.raises(DataError, match=f"corpus.jsonl, line 3: {says}"):
        corpus_at(path)
    with pytest.raises(DataError, match=r"none\.jsonl"):
        corpus_at(tmp_path / "none.jsonl")


def test_a_task_holds_a_digest_and_ids_of_its_corpus(tmp_path):
    digest = write_corpus(DOCUMENTS, tmp_path)
    assert write_corpus(DOCUMENTS, tmp_path) == digest
    task = retrieval_task("Who?", {"corpus": digest, "documents": ["D2", "D3"]}, GOAL)
    own, pooled = (RetrievalEnvironment(RetrievalArgs(corpora=str(tmp_path), pooled=pooled)) for pooled in (False, True))
    for environment in (own, pooled):
        environment.reset(task)
    assert own.step("search", {"query": "Ines"}).text == "Ines [D2]"
    assert pooled.step("search", {"query": "Ines"}).text == "Lortex [D1]\nInes [D2]"
    assert own.step("open", {"id": "D1"}).error, "another question's document"
    with pytest.raises(DataError, match="no document 'D7'"):
        own.reset(retrieval_task("Who?", {"corpus": digest, "documents": ["D7"]}, GOAL))
    (tmp_path / f"{digest}.jsonl").write_text(json.dumps(DOCUMENTS[0]) + "\n")
    with pytest.raises(DataError, match="is not what it was"):
        own.reset(task)


@pytest.mark.parametrize(
    ("state", "goal", "says"),
    [
        ({"documents": [{"id": "D1"}]}, GOAL, "a list of documents"),
        ({"documents": [DOCUMENTS[0], DOCUMENTS[0]]}, GOAL, "two documents have one id"),
        ({"corpus": "abc"}, GOAL, "a list of ids"),
        ([1], GOAL, "is an object"),
        ({"documents": DOCUMENTS}, {}, "goal.answers"),
        ({"documents": DOCUMENTS}, {"answers": [""]}, "goal.answers"),
        ({"documents": DOCUMENTS}, {"answers": "Estmark"}, "goal.answers"),
    ],
)
def test_an_incomplete_log_is_a_data_error(state, goal, says):
    with pytest.raises(DataError, match=says):
        RetrievalEnvironment().task_from_log("Who?", {"initial_state": state, "goal": goal})


@pytest.mark.parametrize(
    "state", [{}, {"searches": [], "opened": [1], "answer": None}, {"searches": [], "opened": [], "answer": 3}]
)
def test_only_a_snapshot_can_be_restored(desk, state):
    with pytest.raises(DataError, match="snapshot"):
        desk.restore(retrieval_task("Who?", {"documents": DOCUMENTS}, GOAL), state)


def test_arguments_are_checked():
    with pytest.raises(ConfigError, match="results"):
        make_environment(give('{"kind": "retrieval", "args": {"results": 0}}'))


def test_equal_questions_in_other_words_are_one_task():
    tasks = make_tasks(40, 3)
    one = next(task for task in tasks if task.family == "fact")
    assert retrieval_task("Other words?", one.initial_state, one.goal).fingerprint == one.fingerprint
    assert look(one, one.goal["hops"][0])[0] == ("search", {"query": one.goal["hops"][0]})
