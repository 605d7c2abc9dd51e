"""Files of NQ, HotpotQA and MuSiQue as tasks, on records of the real files.

`samples/` holds the first records of nq_open's dev file (CC BY-SA 3.0) and of FlashRAG's sample of NQ (MIT), and records of
HotpotQA (CC BY-SA 4.0) and MuSiQue (CC BY 4.0) as HippoRAG publishes them, with fewer of the paragraphs that do not help.
"""

import json
from pathlib import Path

import pytest

from tracewheel.core.errors import DataError
from tracewheel.scoring.verifiers import make_verifier
from tracewheel_projects.task_file import TaskSource, task_lines
from tracewheel_worlds.retrieval.environment import RetrievalArgs, RetrievalEnvironment

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
def load(tmp_path):
    environment = RetrievalEnvironment(RetrievalArgs(corpora=str(tmp_path / "corpora")))
    return environment, lambda name: environment.tasks_from(SAMPLES / name)


def test_nq_has_several_answers_and_no_documents(load):
    _, read = load
    tasks = read("nq_open.jsonl")
    assert [(task.goal["answers"], task.initial_state) for task in tasks][:2] == [
        (["14 December 1972 UTC", "December 1972"], {}),
        (["Bobby Scott", "Bob Russell"], {}),
    ]
    assert make_verifier("answer_match").verify(tasks[0], {"answer": "december 1972"})[0] == 1.0
    assert [task.goal["answers"] for task in read("flashrag.jsonl")] == [["Wilhelm Conrad Röntgen"], ["May 18, 2018"]]


@pytest.mark.parametrize(
    ("name", "kinds", "answer"),
    [
        ("hotpotqa.json", [("hotpotqa_bridge", 1), ("hotpotqa_comparison", 2)], "Yes"),
        ("musique.jsonl", [("musique_2_hops", 2), ("musique_3_hops", 3)], "karl renner"),
    ],
)
def test_paragraphs_are_a_corpus_beside_the_task(load, tmp_path, name, kinds, answer):
    environment, read = load
    tasks = read(name)
    assert sorted((task.family, task.tier) for task in tasks) == kinds
    (corpus,) = (tmp_path / "corpora").iterdir()
    assert {task.initial_state["corpus"] for task in tasks} == {corpus.stem}
    text = (SAMPLES / name).read_text()
    records = json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
    for task, record in zip(tasks, records, strict=True):
        assert task.prompt == record["question"] and len(json.dumps(task.initial_state)) < 300
        environment.reset(task)
        found = environment.step("search", {"query": task.prompt}).text.split("\n")
        titles = {line.rsplit(" [", 1)[0] for line in found}
        own = {
            entry[0] if isinstance(entry, list) else entry["title"] for entry in record.get("context", record.get("paragraphs"))
        }
        assert titles and titles <= own
        for line in found:
            assert environment.step("open", {"id": line.rsplit("[", 1)[1].rstrip("]")}).text
        logged = {"initial_state": task.initial_state, "goal": task.goal}
        assert environment.task_from_log(task.prompt, logged).fingerprint == task.fingerprint
    assert make_verifier("answer_match").verify(tasks[-1], {"answer": answer})[0] == 1.0
    assert "supporting" not in json.dumps([task.goal for task in tasks])


def test_the_command_reads_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines, counts = task_lines(TaskSource("retrieval", SAMPLES / "musique.jsonl"))
    assert counts["families"] == {"musique_2_hops": 1, "musique_3_hops": 1} and len(lines) == 2
    assert (tmp_path / "data/corpora").is_dir()


def test_the_other_form_of_hotpotqa_is_read_alike(load, tmp_path):
    """As `datasets` stores it: the context is an object of two lists."""
    environment, read = load
    records = json.loads((SAMPLES / "hotpotqa.json").read_text())
    for record in records:
        record["context"] = {
            "title": [title for title, _ in record["context"]],
            "sentences": [own for _, own in record["context"]],
        }
    (tmp_path / "hotpotqa.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert [task.id for task in environment.tasks_from(tmp_path / "hotpotqa.jsonl")] == [
        task.id for task in read("hotpotqa.json")
    ]


BROKEN = {
    "no question": ({"answer": ["x"]}, "'question' needs a text"),
    "no answer": ({"question": "Who?"}, "'answer' needs a text"),
    "an empty answer": ({"question": "Who?", "answer": ["x", " "]}, "none of them empty"),
    "a number": ({"question": "Who?", "answer": 3}, "'answer' needs a text"),
    "no record": (["Who?"], "a record is an object"),
    "a context of texts": ({"question": "Who?", "answer": "x", "context": ["text"]}, r"'context\[0\]' needs a title"),
    "a context that is a text": ({"question": "Who?", "answer": "x", "context": "text"}, "'context' needs a list"),
    "uneven lists": ({"question": "Who?", "answer": "x", "context": {"title": ["a"], "sentences": []}}, "'context' needs"),
    "a paragraph without text": (
        {"question": "Who?", "answer": "x", "paragraphs": [{"title": "a"}]},
        r"'paragraphs\[0\]' needs",
    ),
}


@pytest.mark.parametrize(("record", "says"), BROKEN.values(), ids=BROKEN)
def test_a_broken_record_is_named_by_file_and_line(load, tmp_path, record, says):
    environment, _ = load
    good = (SAMPLES / "nq_open.jsonl").read_text()
    (tmp_path / "lines.jsonl").write_text(good + json.dumps(record) + "\n" + good)
    with pytest.raises(DataError, match=rf"lines\.jsonl, line 4: .*{says}"):
        environment.tasks_from(tmp_path / "lines.jsonl")
    records = [json.loads(line) for line in good.splitlines()]
    (tmp_path / "list.json").write_text("[\n" + ",\n".join(json.dumps(one) for one in [*records, record]) + "\n]")
    with pytest.raises(DataError, match=rf"list\.json, line 5: .*{says}"):
        environment.tasks_from(tmp_path / "list.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[\n{}", "line 2"),
        ('[{"question": "Who?", "answer": "x"},\n oh', "line 2: no JSON"),
        ('{"question": ', "line 1: no JSON"),
        ("\xff", "x"),
    ],
)
def test_a_file_that_is_cut_off_is_no_set_of_tasks(load, tmp_path, text, says):
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=says):
        load[0].tasks_from(path)


def test_unanswerable_questions_are_left_out(load, tmp_path):
    records = [json.loads(line) for line in (SAMPLES / "musique.jsonl").read_text().splitlines()]
    records[0]["answerable"] = False
    (tmp_path / "full.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert [task.family for task in load[0].tasks_from(tmp_path / "full.jsonl")] == ["musique_3_hops"]
