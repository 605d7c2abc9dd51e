"""The command line: fast help, exit codes, one JSON object, and errors that say what to fix."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from flows.cli import build_parser, main
from flows.commands.command import find_commands
from flows.commands.moved import NOW, WHEELS
from flows.console.arguments import best_state
from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.files import write_json
from tracewheel.evaluation.evaluate import EVALUATION_FILE
from tracewheel.policy.adapters import ADAPTER_INFO, base_hash

ROOT = Path(__file__).parents[2]
OWN = """
import os

from tracewheel import Command


def options(parser):
    parser.add_argument("number", type=int)


def run(options):
    print("a library says this")
    os.system("echo a child says this")
    return {"counted": options.number}


COMMAND = Command("count", "count", options, run)
OF_A_GROUP = Command("runs count", "count", options, run)
"""
HEAVY = ("torch", "transformers", "pandas", "prefect", "mlflow", "pydantic", "trl", "peft")


@pytest.mark.parametrize("name", [command.name for command in find_commands()])
def test_every_command_has_help_with_the_exit_codes(name, capsys):
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args([*name.split(), "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for expected in ("--json", "--debug", "3 gate refused", "4 the doctor"):
        assert expected in shown
    assert build_parser(name.split()[0]).format_usage() == build_parser().format_usage()


@pytest.mark.parametrize("name", NOW)
def test_old_names_answer_with_the_new_one(name, run):
    code, out, err = run(name, "profile.yaml")
    assert (code, out) == (2, "") and err.startswith(f"tracewheel {name}") and f"is now tracewheel {NOW[name]}" in err


def test_new_names_are_commands_and_the_old_ones_are_none():
    names = {command.name for command in find_commands()}
    assert {name.split(" --")[0] for name in NOW.values()} <= names | WHEELS.keys() | {"stage"}
    assert not names & NOW.keys()


def test_a_command_of_a_wheel_is_found_by_its_entry_point(tmp_path, monkeypatch, capfd):
    (tmp_path / "own_wheel.py").write_text(OWN)
    info = tmp_path / "own_wheel-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-wheel\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[tracewheel.commands]\ncount = own_wheel:COMMAND\nruns-count = own_wheel:OF_A_GROUP\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["count", "3", "--json"]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out) == {"counted": 3} and said.err.count("says this") == 2
    assert main(["count", "3"]) == 0
    assert "counted  3" in capfd.readouterr().out
    assert main(["runs", "count", "4", "--json"]) == 0 and json.loads(capfd.readouterr().out) == {"counted": 4}


def test_a_command_of_a_missing_wheel_says_which(run, monkeypatch):
    monkeypatch.setattr("flows.commands.command.entry_points", lambda group: [])
    for name in WHEELS.keys() - {command.name for command in find_commands()}:
        code, _, err = run(*name.split())
        assert code == 2 and f"is in the wheel tracewheel-{WHEELS[name]}, which is not installed" in err


def test_help_imports_nothing_heavy():
    code = f"import sys; from flows.cli import build_parser; build_parser(); print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["retrain", "curate"])
def test_help_is_fast(name):
    """Measured in processor time, which does not depend on the load."""

    def spent():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    subprocess.run([sys.executable, "-m", "flows.cli", name, "--help"], capture_output=True, check=True)
    assert spent() - before < 0.5


def test_a_wrong_config_prints_one_line_and_exits_with_2(run, profile):
    code, out, err = run("retrain", profile, "--set", "trainig.iterations=3")
    assert (code, out) == (2, "")
    assert err == f"tracewheel: error: {profile}: trainig: no such key; did you mean training?\n"


def test_errors_print_one_json_object(run, tmp_path):
    code, out, _ = run("retrain", tmp_path / "nowhere.yaml", "--json")
    assert code == 2
    assert json.loads(out) == {
        "error": f"{tmp_path}/nowhere.yaml: no such config file",
        "kind": "ConfigError",
        "exit_code": 2,
    }


@pytest.mark.parametrize(
    ("arguments", "expected"), [(["describe", "--json"], 0), (["describe"], 0), (["retrain", "nowhere.yaml", "--json"], 2)]
)
def test_the_exit_code_is_the_commands_although_nobody_reads_its_result(arguments, expected):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "flows.cli", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.returncode == expected, done.stderr
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("ingest.paths=[nowhere.jsonl]", "nowhere.jsonl: no such trace file"),
        ("ingest.paths=[nowhere/*.jsonl]", "no trace file matches this pattern"),
        ("policy.base=no/such/model", "policy.base"),
    ],
)
def test_missing_inputs_are_reported_at_the_start(run, profile, tmp_path, setting, message):
    code, _, err = run("retrain", profile, "--set", setting, "--run-dir", tmp_path / "runs")
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("runs/*/lineage.json"))


def test_debug_shows_the_traceback_of_an_unexpected_error(run, profile, monkeypatch, tmp_path):
    def fail(*arguments):
        raise KeyError("surprise")

    monkeypatch.setattr("tasks.tracking.registry.find_champion", fail)
    code, _, err = run("runs", "status", profile, "--run-dir", tmp_path)
    assert code == 1
    assert "unexpected KeyError: 'surprise' (--debug shows where)" in err
    with pytest.raises(KeyError):
        main(["runs", "status", str(profile), "--run-dir", str(tmp_path), "--debug"])


def test_infrastructure_errors_exit_with_1_and_interrupts_with_130(run, profile, monkeypatch, tmp_path):
    for error, expected in ((InfrastructureError("the disk is full"), 1), (KeyboardInterrupt(), 130)):

        def fail(*arguments, error=error):
            raise error

        monkeypatch.setattr("tasks.tracking.registry.find_champion", fail)
        code, _, err = run("runs", "status", profile, "--run-dir", tmp_path)
        assert code == expected
        assert "Traceback" not in err


def test_broken_lines_are_quarantined_with_number_and_reason(run, profile, tmp_path):
    (tmp_path / "traces.jsonl").write_text('{"messages": [\n{"no": "messages"}\n')
    setting = f"ingest.paths=[{tmp_path}/traces.jsonl]"
    code, out, _ = run("ingest", profile, "--set", setting, "--out", tmp_path / "out", "--json")
    assert code == 2  # nothing was kept
    report = json.loads(out)
    assert (report["read"], report["quarantined"], report["kept"]) == (2, 2, 0)
    lines = [json.loads(line) for line in (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()]
    assert [line["line"] for line in lines] == [1, 2]
    assert all(line["reason"] for line in lines)


def test_stages_run_one_by_one_on_folders(run, profile, tmp_path):
    ingested, curated = tmp_path / "ingested", tmp_path / "curated"
    assert run("ingest", profile, "--out", ingested)[0] == 0
    code, out, _ = run("curate", profile, "--traces", ingested, "--out", curated, "--json")
    assert code == 0
    assert json.loads(out)["splits"]["held_out"]["tasks"] == 12
    code, _, err = run("curate", profile, "--traces", tmp_path / "nowhere", "--out", curated)
    assert code == 2
    assert "nowhere: no such folder" in err


def test_the_best_state_is_that_of_the_best_evaluation(tmp_path):
    pairs = []
    for name, greedy, sampled in (("first", 0.5, 0.4), ("second", 0.7, 0.6), ("third", 0.6, 0.7), ("unscored", None, None)):
        evaluation, state = tmp_path / f"{name}-evaluation", tmp_path / name
        evaluation.mkdir()
        state.mkdir()
        write_json(evaluation / EVALUATION_FILE, {"greedy": {"rate": greedy}, "sampled": {"rate": sampled}})
        pairs.append(f"{evaluation}={state}")
    assert best_state(pairs) == str(tmp_path / "second")  # the third is as good
    with pytest.raises(DataError, match="--best-of nowhere: expected"):
        best_state([*pairs, "nowhere"])


def test_an_adapter_for_another_base_is_refused(run, profile, base, tmp_path):
    adapter = tmp_path / "state" / "adapter"
    adapter.mkdir(parents=True)
    write_json(adapter / ADAPTER_INFO, {"base_hash": "another", "version": 1})
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (adapter / name).touch()
    curated = tmp_path / "curated"
    curated.mkdir()
    arguments = ("stage", "rollout", profile, "--curated", curated, "--state", tmp_path / "state", "--out", tmp_path / "out")
    code, _, err = run(*arguments)
    assert code == 2
    assert "holds no tasks.parquet" in err
    for name in ("tasks.parquet", "episodes.parquet"):
        (curated / name).touch()
    code, _, err = run(*arguments)
    assert code == 2
    assert err.count("\n") == 1
    for expected in ("another", base_hash(base)):
        assert expected in err


def test_an_update_on_episodes_of_an_evaluation_is_refused(run, profile, tmp_path):
    curated, state = tmp_path / "curated", tmp_path / "state"
    for folder in (curated, state):
        folder.mkdir()
    tasks = pandas.DataFrame([("t1", "f1", "train"), ("t2", "f2", "held_out")], columns=["id", "fingerprint", "split"])
    tasks.to_parquet(curated / "tasks.parquet")
    (curated / "episodes.parquet").touch()
    pandas.DataFrame({"task_id": ["t1", "t2"]}).to_parquet(tmp_path / "trajectories.parquet")
    files = ("--trajectories", tmp_path / "trajectories.parquet", "--scores", tmp_path / "scores.parquet")
    words = ("stage", "update", profile, *files, "--state", state, "--reference", state, "--out", tmp_path / "out")
    code, _, err = run(*words, "--curated", curated)
    assert code == 2 and "task t2 is no training task" in err and not (tmp_path / "out").exists()
    with pytest.raises(SystemExit):
        run(*words)
