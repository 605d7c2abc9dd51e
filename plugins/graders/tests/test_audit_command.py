"""`tracewheel audit`: the command, its exit code, its page, and what it notes with a run."""

import argparse
import json
import re
import shutil
from pathlib import Path

import pytest

from flows.cli import main
from flows.console.look import show_card
from mlflow import MlflowClient
from tasks.tracking.shown import audit_metrics
from tracewheel.core.fingerprint import digest_file
from tracewheel.report.glossary import knows
from tracewheel_graders.commands.audit import COMMAND

FEW = ("--set", "audit.tasks=6")


@pytest.fixture
def profile_of_orders(tmp_path):
    path = tmp_path / "orders.yaml"
    path.write_text("name: orders\nenvironment: {kind: order_desk}\n")
    return str(path)


def test_a_sound_grader_passes_and_a_weak_one_ends_with_four(profile_of_orders, tmp_path, capsys, monkeypatch):
    out = tmp_path / "sound"
    assert main(["audit", profile_of_orders, *FEW, "--out", str(out), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["verdict"], made["tasks"], made["environments"]) == ("passed", 6, ["order_desk"])
    assert made["verifiers"]["order_desk"]["repeats"] == {"episodes": 64, "differ": {"order": 0, "process": 0}, "error": ""}
    assert all(knows(name) for name in audit_metrics(made))
    page = (out / "audit.html").read_text()
    assert "order_desk: passed" in page and "<script" not in page

    monkeypatch.syspath_prepend(Path(__file__).parent)
    weak = [*FEW, "--verifier", "weak_graders:OnlyLastCall", "--out", str(tmp_path / "weak")]
    assert main(["audit", profile_of_orders, *weak]) == 4
    shown = capsys.readouterr()
    assert "weak_graders:OnlyLastCall accepts" in shown.err and "failed" in shown.out
    assert "near miss: told only" in (tmp_path / "weak" / "audit.html").read_text()


def test_a_judge_that_length_sways_ends_with_four(chat_server, tmp_path, capsys):
    """It passes whoever is "glad" to help, which is what the audit pads with."""

    def answer(body, number):
        said = "met" if "glad" in body["messages"][1]["content"] else "not_met"
        return {"content": json.dumps({"criteria": {"ok": {"reason": "<b>", "verdict": said}}})}

    models = [{"endpoint": chat_server(answer).url, "model": "m", "concurrency": 4}]
    args = {"models": models, "criteria": [{"name": "ok", "ask": "?"}], "journal": str(tmp_path / "journal.jsonl")}
    held_back = {"mode": "outcome_first", "verifiers": [{"kind": "task"}, {"kind": "judge", "args": args, "role": "shaping"}]}
    values = {"name": "orders", "environment": {"kind": "order_desk"}, "evaluation": {"rubric": held_back}}
    (tmp_path / "p.yaml").write_text(json.dumps(values))
    asked = ["audit", str(tmp_path / "p.yaml"), *FEW, "--set", "audit.judged_tasks=3", "--out", str(tmp_path / "out")]
    assert main(asked) == 4
    shown = capsys.readouterr()
    assert "judge flips on 3 of 3 wrong attempts with another length" in shown.err and "Judges" in shown.out
    metrics = audit_metrics(json.loads((tmp_path / "out" / "audit.json").read_text()))
    assert metrics["audit/judge.held_back/flips/length"] == 1.0 and metrics["audit/judge.held_back/tells"] == 0.0
    assert all(knows(name) for name in metrics)
    page = (tmp_path / "out" / "audit.html").read_text()
    assert "100.0% <span" in page and "3 of 3" in page and "ok 1: m 1 (&lt;b&gt;)" in page


def test_what_a_model_wrote_stays_text_on_the_page(tmp_path):
    from tracewheel.dashboard.files import write_audit_page

    rate = {"wrong": 1, "probes": 2, "rate": 0.5, "low": 0.1, "high": 0.9}
    found = {
        "kind": "<b>own</b>", "verdict": "failed", "reasons": ["<i>"], "tasks": 1, "probes": 2, "false_accept": rate,
        "false_reject": rate, "exploitable": {"tasks": 1, "of": 1, "upper": 1.0}, "unscored": 0, "doubtful": 0,
        "reward_of_wrong": 0.5, "repeats": {"episodes": 2, "differ": {}, "error": ""},
        "rates": [rate | {"kind": "attack.empty", "wants": "refuse", "unscored": 0, "doubtful": 0}],
        "examples": [{
            "what": "wrong", "kind": "attack.empty", "wants": "refuse", "total": 1.0, "task_id": "t",
            "prompt": "<script>alert(1)</script>",
            "calls": ["answer {'text': '<img>'}"], "said": "</section>", "error": "", "explanation": "",
        }],
    }  # fmt: skip
    page = write_audit_page({"verdict": "failed", "tasks": 1, "environments": ["x"], "verifiers": {"own": found}}, tmp_path)
    text = page.read_text()
    assert "<script>" not in text and "<img>" not in text and "&lt;script&gt;alert(1)" in text


@pytest.mark.slow
def test_an_audit_is_noted_with_a_finished_run(profile, finished, tmp_path, capsys):
    folder, _, shown = finished
    run_id = shown["run_id"]
    assert main(["audit", str(profile), *FEW, "--run-dir", str(folder), "--run", run_id, "--out", str(tmp_path / "a")]) == 0
    lineage = json.loads((Path(folder) / run_id / "lineage.json").read_text())
    assert lineage["audit"]["verdict"] == "passed" and 0.0 < lineage["audit"]["exploitable"] < 1.0
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    logged = client.get_run(lineage["mlflow_run"])
    assert logged.data.metrics["audit/exploitable"] == lineage["audit"]["exploitable"]
    assert logged.data.tags["tracewheel.audit"] == "passed"
    for name in ("audit/audit.json", "lineage.json"):
        there = Path(client.download_artifacts(logged.info.run_id, name, str(tmp_path)))
        assert there.read_bytes() == (Path(folder) / run_id / Path(name).name).read_bytes(), name


@pytest.mark.slow
def test_a_run_audits_its_graders_for_the_gate(profile, finished, tmp_path, capsys):
    folder = shutil.copytree(finished[0], tmp_path / "runs")  # all but the audit, the gate and the report is stored there
    asked = [*FEW, "--set", "gate.false_accepts=audit", "--run-dir", str(folder), "--json"]
    assert main(["retrain", str(profile), *asked]) in (0, 3)
    record = folder / json.loads(capsys.readouterr().out)["run_id"]
    made = json.loads((record / "audit.json").read_text())
    assert (made["verdict"], list(made["verifiers"])) == ("passed", ["workspace"])
    lineage, entries = json.loads((record / "lineage.json").read_text()), (record / "entries.txt").read_text().split()
    assert lineage["audit"]["entry"] in entries and lineage["audit"]["digest"] and lineage["gate"]["verdict"]
    assert lineage["audit"]["sha256"] == digest_file(record / "audit.json")
    page = (record / "report.html").read_text()
    assert "The graders" in page and f"at most {made['exploitable']:.1%}" in page


def test_other_folders_than_a_curation_are_named(profile_of_orders, tmp_path, capsys):
    ingested, empty = tmp_path / "ingested", tmp_path / "empty"
    (ingested / "traces.parquet").mkdir(parents=True)
    empty.mkdir()
    for folder, words in {
        ingested: ["these are the traces of `tracewheel ingest`", f"tracewheel curate PROFILE.yaml --traces {ingested} --out"],
        empty: ["holds no tasks.parquet; give the output of `tracewheel curate`"],
    }.items():
        assert main(["audit", profile_of_orders, "--curated", str(folder), "--out", str(tmp_path / "out")]) == 2
        said = capsys.readouterr().err
        assert f"--curated {folder}: " in said
        assert all(word in said for word in words), said


@pytest.fixture
def sample(tmp_path, monkeypatch):
    """The project that `tracewheel init` writes, its logs curated in `cur`; the current folder."""
    project = tmp_path / "my-agent"
    assert main(["init", str(project)]) == 0
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(project))
    assert main(["ingest", "profile.yaml", "--out", "in"]) == 0
    assert main(["curate", "profile.yaml", "--traces", "in", "--out", "cur"]) == 0
    return project


def test_a_split_that_is_none_and_credit_before_the_first_call(sample, capsys):
    part = "my_agent.verifier:FilesMoved.files_in_place"
    credit = f'rubric.objectives=[{{kind: part, name: progress, part: "{part}"}}]'
    asked = ["audit", "profile.yaml", "--curated", "cur", "--out", "aud", *FEW, "--json", "--set", credit]

    def run(*words):
        capsys.readouterr()
        return main([*asked, *words]), *capsys.readouterr()

    code, out, _ = run()
    assert code == 0 and json.loads(out)["idle"]["share"] > 0.15
    code, _, said = run("--set", "audit.max_idle_reward=0.1")
    assert code == 4 and "(audit.max_idle_reward); no part that is rewarded should be there before the first call" in said
    code, _, said = run("--set", credit.replace("files_in", "file_in"))
    assert code == 2 and "has no part" in said
    code, _, said = run("--split", "heldout")
    assert code == 2 and "the split heldout has no tasks; it has held_out (40), train (30), validation (8)" in said


def test_the_card_of_a_judge_repeats_the_profile_as_typed_and_fits_a_narrow_terminal(monkeypatch, capsys):
    rate = {"rate": 0.9, "interval": [0.7, 0.97], "n": 19}
    result = {
        "labelled": 20, "without_verdict": 1, "flagged": 0, "agreement": rate, "kappa": {"value": None, "interval": None},
        "false_accept": {"rate": None, "interval": [0.0, 1.0], "n": 0}, "false_reject": rate, "length_bias": None,
    }  # fmt: skip
    parser = argparse.ArgumentParser()
    COMMAND.options(parser)
    options = parser.parse_args(["my profile.yaml", "--set", "seed=1", "--unsafe-local"])
    assert options.unsafe_local
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    show_card(COMMAND.card(options, result))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert "next: tracewheel retrain 'my profile.yaml' --set seed=1" in lines
    assert [line for line in lines if len(line) > 60 and not line.startswith("next: ")] == []
    assert not re.search(r"[{}\[\]]|None|null|True|False", "\n".join(lines[:-1]))
