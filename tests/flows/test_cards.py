"""What commands print for a person: cards instead of dictionaries, on any terminal; and logs of which too little holds."""

import argparse
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flows.cli import main
from flows.commands.command import find_commands
from flows.console.encoding import clean
from flows.console.look import show_card
from flows.console.printing import card_of
from flows.intake import look_at_quarantine
from flows.retrain import look_at_agreement
from flows.setup import resolve_config
from tasks.engine.reading import begin_run
from tracewheel.core.errors import DoubtfulData
from tracewheel.core.store import Entry
from tracewheel.traces.quarantine import ADVICE, REASONS, shortfall

ROOT = Path(__file__).parents[2]
RECORD = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}]}
COMMANDS = {command.name: command for command in find_commands()}
MODE = {"rate": 0.375, "interval": [0.137, 0.694], "n": 8}
NO_RATE = {"rate": None, "interval": None, "n": 0}
VERDICT = {
    "verdict": "refused",
    "baseline": "base",
    "reasons": ["too few tasks"],
    "difference": 0.1,
    "interval": [-0.1, 0.3],
    "p_value": 0.2,
}
# What each command returns, as `--json` prints it.
RESULTS = {
    "stage base-policy": {"out": "b", "parameters": 650000, "loss": 0.3},
    "stage warm-start": {"out": "w", "demonstrations": 19, "examples": 27, "steps": 1.0, "final_loss": 0.1},
    "teach": {
        "out": "t", "episodes": 4, "success": None, "demonstrations": 0, "tasks": 2, "tasks_taught": 0,
        "left_out": {"not solved": 4}, "replies": 4, "cost": None, "stopped": "the budget is spent",
    },
    "stage rollout": {"out": "r", "episodes": 24, "generated_tokens": 1817, "group_diversity": 0.1},
    "stage score": {
        "out": "s", "trajectories": 24, "scored": 22, "unscored": 1, "infrastructure_failed": 1, "reward": None,
        "success": None, "breakdown": {"workspace.files": 0.7},
    },
    "stage update": {"out": "u", "steps": 0.0, "reward": 0.1, "generated_tokens": 75.7},
    "stage improve": {
        "out": "i", "best": "start", "best_iteration": 0,
        "candidates": [{"policy": "start", "iteration": 0, "greedy": 0.25, "sampled": None}],
        "guard": [{"iteration": 3, "action": "back"}],
    },
    "evaluate": {
        "out": "e", "policy": "base", "tasks": 8, "greedy": MODE, "sampled": NO_RATE, "pass_at": {"1": 0.25, "2": None},
        "by_tier": {"5": {"greedy": MODE, "sampled": NO_RATE}}, "by_family": {},
        "missing": {"greedy": {"unscored": 1, "infrastructure_failed": 0}}, "generated_tokens": 1182.0,
    },
    "champion promote": VERDICT,
    "runs report": {"report": "runs/1/report.html"},
    "champion rollback": {"restored": "1", "run_id": "abc", "rolled_back": "2", "why": "loops"},
    "runs status": {
        "runs": [
            {"run_id": "1ea1d26c4577", "started": "2026-11-23T04:26:38+00:00", "state": "complete", "verdict": "refused",
             "success": 0.29, "report": "/a/very/long/path/of/a/run/in/some/work/folder/1ea1d26c4577/report.html"},
        ],
        "champion": None, "note": "no champion yet",
    },
    "deploy": {"deployment": "retrain/tiny"},
    "champion approve": {
        "run_id": "abc", "decision": "approved", "by": "Ada", "at": "2026-11-23", "note": "well", "outcome": "promoted",
    },
    "dashboard": {"out": "run.html", "pages": ["Overview"], "bytes": 12},
    "runs sync": {"delivered": ["abc"], "waiting": 0},
    "runs gc": {
        "work_dir": "runs", "freed": False, "bytes": 5_000_000, "kinds": {"rollout": {"entries": 3, "bytes": 5_000_000}},
        "kept": {"entries": 20, "store_bytes": 90_000_000, "runs": {"abc": "the champion's"}}, "champion": "version 2",
    },
    "stage keys": {"out": "k", "stages": ["ingest", "curate"]},
    "stage figures": {
        "out": "f", "eval": {"rl": {"held_out": 0.5}}, "gate": {"verdict": "refused", "difference": 0.01},
        "train": {"iterations": 2, "learning_rate": 0.001}, "cost": {"training_tokens": 1200},
    },
    "data report": {
        "out": "q", "funnel": [{"name": "read", "count": 786, "unit": "traces", "lost": {"not JSON": 1}}],
    },
}  # fmt: skip
TYPED = argparse.Namespace(
    config="my profile.yaml", overrides=["seed=1"], run_dir=None, curated="data/curated", out="out", traces="data/ingested",
    trajectories="ro/trajectories.parquet", split="validation", keep=None, policy="runs/abc",
)  # fmt: skip


def shown(options, result, monkeypatch, columns=None):
    """The card as a terminal of this width shows it, or as a pipe gets it."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    if columns:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(columns))
    show_card(card_of(options, result))
    return out.getvalue()


@pytest.mark.parametrize("command", RESULTS)
def test_no_dictionary_is_printed_and_narrow_terminals_hold_every_line(command, monkeypatch):
    options = argparse.Namespace(**vars(TYPED), command=COMMANDS[command])
    text = shown(options, RESULTS[command], monkeypatch)
    said = re.sub(r"next: .*", "", text)
    assert "\x1b" not in text and not re.search(r"[{}\[\]]|None|null|True|False", said)
    if "my profile" in text:
        assert "'my profile.yaml' --set seed=1" in text  # as it is typed
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown(options, RESULTS[command], monkeypatch, columns=60)).splitlines()
    assert [line for line in lines if len(line) > 60 and not line.startswith("next: ")] == []


def test_text_of_logs_cannot_move_the_cursor():
    assert clean("a\x1b[2Jb\u202ec\u00a0d\te\r") == "a\\x1b[2Jb\\u202ec d e\\r"


@pytest.fixture
def log(tmp_path):
    """A log of which one record in four can be read."""
    lines = [json.dumps(RECORD), '{"a": "\\u001b[31m–"}', '{"b": 2}', "no – json"]
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "log.jsonl"


class TestTooLittleIsKept:
    def test_it_is_loud_and_ends_with_2_until_it_is_allowed(self, log, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert main(["ingest", "log.jsonl", "--out", "out"]) == 2
        out, err = capsys.readouterr()
        assert "LOOK AT: 3 of 4 records are in quarantine (75%), under half were kept" in out
        assert "accept it with --allow-quarantine" in err
        assert re.search(r"2 × unknown format\n +log.jsonl:2: no reader knows an object with the keys 'a'", out)
        assert re.search(r"1 × not JSON\n +log.jsonl:4: ", out)
        assert "--reader module:Class" in out and "next: tracewheel data explain log.jsonl:2" in out
        assert "tracewheel curate" not in out
        assert main(["ingest", "log.jsonl", "--out", "out", "--json"]) == 2  # nothing new, and still too little
        assert json.loads(capsys.readouterr().out)["by_reason"] == {"not JSON": 1, "unknown format": 2}
        assert main(["ingest", "log.jsonl", "--out", "out", "--allow-quarantine"]) == 0
        assert "LOOK AT" in capsys.readouterr().out

    def test_another_encoding_gets_other_signs(self, log, tmp_path):
        done = subprocess.run(
            [sys.executable, "-m", "flows.cli", "ingest", str(log), "--out", str(tmp_path / "out")],
            cwd=ROOT, capture_output=True, check=False,
            env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "latin-1", "PATH": ""},
        )  # fmt: skip
        assert done.returncode == 2
        assert "-> Name the format" in done.stdout.decode("ascii", "replace")

    def test_duplicates_are_kept_by_their_twins(self):
        counts = {"read": 10, "kept": 1, "duplicates": 9, "quarantined": 0}
        assert shortfall(counts) == ""
        assert shortfall({**counts, "kept": 4, "duplicates": 1, "quarantined": 5}) == ""
        assert shortfall({**counts, "kept": 3, "duplicates": 1, "quarantined": 6}).startswith("6 of 10 records")
        assert shortfall({**counts, "added": {"read": 2, "kept": 0, "quarantined": 2}}).startswith("2 of 2 new records")
        assert shortfall({**counts, "kept": 0}) == "nothing was kept of 10 records"

    def test_each_reason_says_what_to_do(self):
        assert tuple(ADVICE) == REASONS
        assert all(text.endswith(".") for text in ADVICE.values())

    def test_a_run_is_refused_before_it_trains_on_the_rest(self, log, tmp_path, profile):
        main(["ingest", str(log), "--out", str(tmp_path / "out")])
        report = json.loads((tmp_path / "out/report.json").read_text())
        traces = Entry("ingest", "", tmp_path / "out", "", 0.0, report)
        with pytest.raises(
            DoubtfulData, match=r"3 of 4 records .*\n  2 unknown format \(as log.jsonl:2: [\s\S]*allow_quarantine=true"
        ):
            look_at_quarantine(begin_run(resolve_config(str(profile), [], str(tmp_path / "runs"))), traces)
        allowed = resolve_config(str(profile), ["ingest.allow_quarantine=true"], str(tmp_path / "runs"))
        look_at_quarantine(begin_run(allowed), traces)


class TestTooLittleIsAsLogged:
    @pytest.fixture(scope="class")
    def drifted(self, profile, tmp_path_factory):
        """The shipped logs with another first reply in six of ten episodes, ingested."""
        folder = tmp_path_factory.mktemp("drifted")
        with (
            open(yaml.safe_load(profile.read_text())["ingest"]["paths"][0], "rb") as lines,
            (folder / "log.jsonl").open("w") as log,
        ):
            for number, line in enumerate(lines):
                if number % 2 or not line.startswith(b"{") or b'"environment"' not in line:
                    continue
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                replies = [message for message in record.get("messages", ()) if message["role"] == "tool"]
                if number % 20 < 12 and replies:
                    replies[0]["content"] = f"{replies[0]['content']} once"
                log.write(json.dumps(record) + "\n")
        assert main(["ingest", str(folder / "log.jsonl"), "--out", str(folder / "ingested")]) == 0
        return folder

    def curate(self, folder, profile, *options):
        sizes = ["train_tasks=3", "validation_tasks=2", "held_out_tasks=2", "harder_tasks=0", "min_attempts=1"]
        settings = [word for size in sizes for word in ("--set", f"curation.{size}")]
        return main(
            ["curate", str(profile), "--traces", str(folder / "ingested"), *settings, "--out", str(folder / "out"), *options]
        )

    def test_it_is_said_first_with_the_reply_that_differs(self, drifted, profile, capsys, tmp_path):
        assert self.curate(drifted, profile) == 2
        out, err = capsys.readouterr()
        assert re.match(r"7 tasks of \d+ traces .*\n +as logged +\d+ of \d+ episodes \([34]\d\.\d%\)", out)
        found = re.search(
            r"The first reply that is not as logged\n +trace (\S+), turn 1: .*\n +logged: +(.*) once\n +replayed: (.*)\n", out
        )
        assert found and found[2] == found[3]
        assert "LOOK AT: only" in out and "next:" not in out
        assert "accept it with --allow-drift" in err
        result = json.loads((drifted / "out/report.json").read_text())
        run = begin_run(resolve_config(str(profile), [], str(tmp_path)))
        with pytest.raises(DoubtfulData, match=r"agree with their log.*curation.allow_drift=true"):
            look_at_agreement(run, Entry("curate", "", drifted / "out", "", 0.0, result))
        assert self.curate(drifted, profile, "--allow-drift") == 0

    def test_what_is_missing_for_that_reason_is_not_put_down_to_the_counts(self, drifted, profile, capsys):
        exact = ("--set", "curation.min_attempts=4", "--set", "curation.counts=exact")
        assert self.curate(drifted, profile, *exact) == 2
        assert re.search(
            r"error: only \d+ of \d+ episodes .* Such episodes stay unscored; hence: train: ", capsys.readouterr().err
        )


def test_allowing_it_makes_no_other_stage(profile, tmp_path):
    """The same results: only what the run does with them changes."""
    from tasks.engine.run import settings_for

    plain = resolve_config(str(profile), [], str(tmp_path))
    allowed = resolve_config(str(profile), ["ingest.allow_quarantine=true", "curation.allow_drift=true"], str(tmp_path))
    sections = ("ingest", "curation")
    assert settings_for(plain, sections) == settings_for(allowed, sections)
