"""`tracewheel data …`: diff, record and report, from the command line."""

import json

import pandas as pd
import pytest

from flows.cli import build_parser, main


@pytest.fixture
def run(capsys):
    """Runs a command in this process: exit code, standard output, standard error."""

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def made(profile, tmp_path_factory):
    """Ingested and curated logs of the profile."""
    folder = tmp_path_factory.mktemp("made")
    assert main(["ingest", str(profile), "--out", str(folder / "ingested")]) == 0
    assert main(["curate", str(profile), "--traces", str(folder / "ingested"), "--out", str(folder / "curated")]) == 0
    return folder / "ingested", folder / "curated"


@pytest.mark.parametrize("name", ["diff", "record", "report"])
def test_each_has_help_with_the_exit_codes(name, capsys):
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(["data", name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "--json" in shown and "2 bad input" in shown


def test_a_data_set_is_the_same_as_itself(run, made):
    code, out, _ = run("data", "diff", made[1], made[1], "--json")
    assert code == 0 and json.loads(out)["same"] is True


def test_a_changed_task_is_in_the_table_and_in_the_list(run, made, tmp_path):
    tasks = pd.read_parquet(made[1] / "tasks.parquet")
    tasks.loc[0, "tier"] += 1
    tasks.iloc[:-1].to_parquet(tmp_path / "tasks.parquet")
    (tmp_path / "episodes.parquet").write_bytes((made[1] / "episodes.parquet").read_bytes())
    code, out, _ = run("data", "diff", made[1], tmp_path)
    assert code == 0
    assert f"changed {tasks['id'][0]}: tier" in out and f"removed {tasks['id'].iloc[-1]}" in out
    code, out, _ = run("data", "diff", made[1], tmp_path, "--json")
    found = json.loads(out)
    assert (found["same"], found["tasks"]["removed"], found["tasks"]["changed"]) == (False, 1, 1)


@pytest.mark.parametrize("arguments", [("nowhere", "nowhere"), (".", "."), (".", ".", "--limit", "-1")])
def test_what_is_no_data_set_is_bad_input(run, arguments):
    code, out, err = run("data", "diff", *arguments)
    assert (code, out) == (2, "") and err.startswith("tracewheel: error:") and "Traceback" not in err


def test_traces_become_an_environment(run, made, tmp_path):
    code, out, _ = run("data", "record", made[0], "--out", tmp_path / "recorded", "--json")
    found = json.loads(out)
    assert code == 0 and found["environment"] == f"recorded:{tmp_path}/recorded"
    assert found["shared_world"] is False, "each task of the workspace has its own files"
    assert len(pd.read_parquet(tmp_path / "recorded/calls.parquet")) == found["calls"]
    code, _, err = run("data", "record", made[0], "--tool-set", "browser", "--out", tmp_path / "none")
    assert code == 2 and "browser" in err and not (tmp_path / "none").exists()


def test_the_quality_report_is_a_page_and_json(run, made, tmp_path):
    code, out, _ = run("data", "report", made[1], "--traces", made[0], "--out", tmp_path / "quality", "--json")
    assert code == 0 and json.loads(out)["funnel"][0]["name"] == "read"
    assert {path.name for path in (tmp_path / "quality").iterdir()} == {"quality.html", "quality.json"}
