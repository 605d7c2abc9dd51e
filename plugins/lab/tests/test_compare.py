"""Runs side by side: what is shared is paired, and what is not is counted."""

import json
import re
from itertools import product

import pandas as pd
import pytest
import yaml

from flows.cli import main
from tracewheel import DataError, FinishedRun, document_file, run_named
from tracewheel.core.run_record import RunRecord
from tracewheel.core.store import Store, remove
from tracewheel.dashboard.files import export_runs
from tracewheel_lab.compare.comparison import check_runs, compare_runs
from tracewheel_lab.compare.sections import sections_of, title_of
from tracewheel_lab.formats import to_markdown

SETTINGS = {
    "name": "by-hand",
    "seed": 0,
    "environment": {"kind": "workspace"},
    "rubric": {"verifiers": [{"kind": "task", "weight": 1.0}]},
    "evaluation": {"samples": 2, "temperature": 1.0, "top_p": 1.0},
    "gate": {"greedy_weight": 0.5},
}
SAID = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "tidy up"}]


def write_episodes(out, greedy, words):
    """The greedy episodes of an evaluation, whose last message depends on `words`."""
    (out / "greedy").mkdir()
    rows = [
        {
            "id": f"{words}-{task}",
            "task_id": task,
            "messages": json.dumps([*SAID, {"role": "assistant", "content": f"{words if task.endswith('1') else 'done'}"}]),
            "final_state": json.dumps({"files": {"/a": words if task.endswith("1") else "x"}}),
            "stop_reason": "finished",
            "detail": "",
        }
        for task in greedy
    ]
    pd.DataFrame(rows).to_parquet(out / "greedy" / "trajectories.parquet")
    scores = [{"trajectory_id": row["id"], "task_id": row["task_id"], "detail": "the verifier's words"} for row in rows]
    pd.DataFrame(scores).to_parquet(out / "greedy" / "scores.parquet")


@pytest.fixture
def write_run(tmp_path):
    """Writes a run: greedy success by task (`family` is the part of the id before "-"), splits by task, settings to change."""

    def write(run_id, rl, base, *, splits=None, settings=None, words="so"):
        work, record = tmp_path / f"work-{run_id}", tmp_path / f"work-{run_id}" / run_id
        record.mkdir(parents=True)
        store = Store(work / "store")
        names = []

        def add(stage, key, produce):
            entry = store.make(stage, key, produce)
            names.append(entry.path.name)
            return entry

        def curate(out):
            where = splits or dict.fromkeys(rl, "held_out")
            rows = [{"id": t, "split": s, "family": t.partition("-")[0], "prompt": f"do {t}"} for t, s in where.items()]
            pd.DataFrame(rows).to_parquet(out / "tasks.parquet")
            return {}

        def evaluation(greedy, said):
            def produce(out):
                table = pd.DataFrame({"task_id": list(greedy), "tier": 1, "greedy": list(greedy.values())})
                table["family"] = table["task_id"].str.partition("-")[0]
                table["sampled_successes"], table["sampled_attempts"] = 2 * table["greedy"], 2
                table.to_parquet(out / "results.parquet")
                write_episodes(out, greedy, said)
                return {}

            return produce

        add("curate", "1" * 16, curate)
        theirs = add("evaluate", "2" * 16, evaluation(base, "base"))
        ours = add("evaluate", "3" * 16, evaluation(rl, words))
        add("gate", "4" * 16, lambda out: None)
        profile = {**SETTINGS, **(settings or {})}
        (record / "config.yaml").write_text(yaml.safe_dump(profile))
        lineage = {
            "started": "2026-11-23T12:00:00+00:00",
            "git": {"commit": "c" * 40, "changed": False},
            "inputs": {"base": "b"},
            "evaluations": {
                name: {"held_out": {"entry": entry.path.name}} for name, entry in (("warm_start", theirs), ("rl", ours))
            },
        }
        (record / "lineage.json").write_text(json.dumps(lineage))
        (record / "entries.txt").write_text("".join(f"{name}\n" for name in names))
        (record / "gate.json").write_text(json.dumps({"verdict": "refused", "baseline": "warm_start"}))
        mean = {name: sum(values.values()) / len(values) for name, values in (("warm_start", base), ("rl", rl))}
        summary = {"name": "by-hand", "success": mean, "seconds": {"evaluate": 2.0}, "tokens": {"evaluate": 100}}
        (record / "summary.json").write_text(json.dumps(summary))
        return record

    return write


TASKS = [f"{family}-{number}" for family, number in product(("list", "move"), range(4))]
NOBODY = dict.fromkeys(TASKS, 0.0)


@pytest.fixture
def two(write_run):
    """A base that solves list-0 and list-1; a run that solves list-0 and move-1, trains on move-3 and holds out move-4."""
    base = {**NOBODY, "list-0": 1.0, "list-1": 1.0}
    run = {name: value for name, value in {**NOBODY, "list-0": 1.0, "move-1": 1.0, "move-4": 1.0}.items() if name != "move-3"}
    splits = {**dict.fromkeys(run, "held_out"), "move-3": "train"}
    records = write_run("aaaa", base, NOBODY, words="left"), write_run("bbbb", run, NOBODY, splits=splits, words="right")
    return [FinishedRun(run_named(str(record))) for record in records]


def test_only_shared_tasks_are_paired_and_the_others_are_counted(two):
    found = compare_runs(two)["comparisons"][0]
    part = found["splits"]["held_out"]
    assert part["shared"] == 7
    assert part["only_base"] == {"tasks": 1, "in_run": {"train": 1}}
    assert part["only_run"] == {"tasks": 1, "in_base": {"not in its data": 1}}
    rows = {row["family"]: row for row in part["paired"]["rows"]}
    assert {name: (row["tasks"], row["difference"]) for name, row in rows.items()} == {
        "all families": (7, 0.0),
        "list": (4, -0.25),
        "move": (3, pytest.approx(1 / 3)),
    }
    assert rows["list"]["interval"][0] < -0.25 < rows["list"]["interval"][1]


def test_lost_and_gained_tasks_show_where_their_episodes_part(two):
    found = compare_runs(two)["comparisons"][0]
    assert (found["gained"], found["lost"]) == (1, 1)
    lost, gained = found["changes"]
    assert (lost["change"], lost["task_id"], gained["task_id"]) == ("lost", "list-1", "move-1")
    assert lost["run"]["file"] == f"evaluate-{'3' * 16}/greedy/trajectories.parquet"
    assert lost["base"]["trajectory"] == "left-list-1"
    excerpt = lost["excerpt"]
    assert excerpt["parts_at"] == 3
    assert excerpt["run"]["turns"][0] == "3 assistant: right"
    assert excerpt["base"]["scored"] == "the verifier's words"
    assert excerpt["final_state"] == [["files./a", "left", "right"]]


def test_other_sampling_is_compared_greedily_and_another_meaning_of_success_not_at_all(write_run):
    outcome = {"list-0": 1.0, "list-1": 0.0}
    base = write_run("aaaa", outcome, outcome)
    hotter = write_run(
        "bbbb", outcome, outcome, settings={"evaluation": {"samples": 4, "temperature": 0.7, "top_p": 1.0}, "seed": 1}
    )
    other = write_run("cccc", outcome, outcome, settings={"environment": {"kind": "orders"}})
    found = compare_runs([FinishedRun(run_named(str(record))) for record in (base, hotter, other)])
    second, third = found["comparisons"]
    assert second["not_paired"] == []
    assert not second["splits"]["held_out"]["paired"]["sampled"]
    assert [note.split(":")[0] for note in second["notes"]] == [
        "sampled episodes are not compared",
        "evaluation.samples 2 / 4",
        "seed 0 and 1",
    ]
    assert third["splits"]["held_out"]["paired"] is None
    assert third["not_paired"] == ["success means something else: environment.kind workspace / orders"]
    assert {row["name"] for row in found["config"]} == {
        "evaluation.samples",
        "evaluation.temperature",
        "seed",
        "environment.kind",
    }


def test_every_format_shows_the_same_and_text_stays_text(two, write_run):
    found = compare_runs(two)
    found["comparisons"][0]["changes"][0]["prompt"] = "<script>alert(1)</script> | `x`"
    title, sections = title_of(found), sections_of(found)
    page, text = document_file(title, sections), to_markdown(title, sections)
    assert "<script>" not in page
    assert "<script>" not in text
    for words in ("list-1", "not in its data", "bbbb minus aaaa"):
        assert words in page
        assert words in text
    assert json.loads(json.dumps(found)) == found


def test_a_run_is_not_compared_with_itself(two):
    with pytest.raises(DataError, match="named twice"):
        check_runs([two[0], two[0]])
    with pytest.raises(DataError, match="two or more runs"):
        check_runs(two[:1])


def test_a_lost_evaluation_is_said(two):
    remove(two[0].store / f"evaluate-{'3' * 16}")
    found = compare_runs([FinishedRun(two[0].record), two[1]])["comparisons"][0]
    assert "no evaluation of rl on held_out tasks is known of aaaa" in found["not_paired"][0]
    assert found["changes"] == []


def test_the_command_compares_and_writes_a_page(two, tmp_path, capsys):
    runs = [str(run.record.path) for run in two]
    assert main(["compare", *runs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["comparisons"][0]["gained"] == 1
    assert main(["compare", *runs, "--format", "html", "--out", str(tmp_path / "page.html")]) == 0
    assert "bbbb minus aaaa" in (tmp_path / "page.html").read_text()


def test_the_dashboard_compares_two_runs_and_their_changed_tasks_link_to_both_episodes(client, run_ids):
    assert 'href="/compare"' in client.get("/").text
    text = client.get("/compare", params=[("run", f"demo/{name}") for name in run_ids]).text
    assert "all families" in text
    assert "Costs" in text
    for name in run_ids:
        links = re.findall(rf'href="(/runs/demo/{name}/episodes/[^"]+)"', text)
        assert not links or client.get(links[0]).status_code == 200
    assert client.get("/compare").status_code == 200
    for bad in ("ffffffff", "x", "../../etc/passwd", "demo/%2e%2e", "<script>"):
        answer = client.get("/compare", params={"run": bad})
        assert answer.status_code == 404
        assert "<script>" not in answer.text and "root:" not in answer.text


def test_several_runs_are_exported_as_one_file(shown, run_ids, tmp_path):
    result = export_runs([RunRecord(shown, name) for name in run_ids], tmp_path / "runs.html")
    assert result["pages"] == ["Comparison", *run_ids]
    assert "all families" in (tmp_path / "runs.html").read_text()
