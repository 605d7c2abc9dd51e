"""`tracewheel ingest` on the command line: paths or a profile, one JSON object, errors that say what to do."""

import json

import pandas
import pytest

from flows.cli import main

RECORD = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}]}
COUNTS = {
    "read",
    "kept",
    "duplicates",
    "quarantined",
    "by_reason",
    "by_format",
    "messages",
    "tool_calls",
    "tool_results",
    "unreadable_times",
    "redacted",
}


@pytest.fixture
def run(capsys):
    """Runs a command in this process: exit code, standard output, standard error."""

    def call(*arguments):
        code = main(["ingest", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "logs" / "a.jsonl"
    path.parent.mkdir()
    path.write_text(json.dumps(RECORD) + "\n{\n")
    return path


def test_paths_are_read_and_one_object_printed(run, log, tmp_path):
    code, out, err = run(log, "--format", "auto", "--out", tmp_path / "out", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report.keys() >= COUNTS
    assert (report["read"], report["kept"], report["quarantined"]) == (2, 1, 1)
    assert report["by_reason"] == {"not JSON": 1}
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"traces.parquet", "quarantine.jsonl", "report.json"}
    assert json.loads((tmp_path / "out/report.json").read_text()).items() <= report.items()


def test_a_second_call_adds_new_traces_and_full_starts_over(run, log, tmp_path):
    run(log.parent, "--out", tmp_path / "out")
    with log.open("a") as file:
        file.write(json.dumps({**RECORD, "user": "u"}) + "\n")
    code, out, _ = run(log.parent, "--out", tmp_path / "out", "--json")
    report = json.loads(out)
    assert (code, report["added"]["read"], report["read"]) == (0, 1, 3)
    assert len(pandas.read_parquet(tmp_path / "out/traces.parquet")) == 2
    code, out, _ = run(log.parent, "--out", tmp_path / "out", "--full", "--json")
    assert (code, json.loads(out)["added"]["read"]) == (0, 3)


def test_with_a_profile_every_ingest_starts_over(run, profile, tmp_path):
    for _ in range(2):
        code, out, _ = run(profile, "--out", tmp_path / "out", "--json")
        report = json.loads(out)
        assert (code, report["read"], "added" in report) == (0, 786, False)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"traces.parquet", "quarantine.jsonl", "report.json"}


def test_settings_are_overridden_as_in_a_profile(run, log, tmp_path):
    log.write_text(json.dumps({**RECORD, "user": "ada@lovelace.org"}) + "\n")
    code, out, _ = run(log, "--out", tmp_path / "out", "--set", "ingest.redaction.enabled=false", "--json")
    assert (code, json.loads(out)["redacted"]) == (0, {})


def test_without_a_folder_to_write_to_nothing_is_read(run, log):
    code, _, err = run(log)
    assert code == 2 and "--out DIR is missing" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to read: give a PATH"),
        (("nowhere.jsonl",), "nowhere.jsonl: no such trace file"),
        (("PROFILE", "LOG"), "a profile names its logs itself"),
        (("PROFILE", "--format", "atif"), "a profile names its logs itself"),
        (("--mlflow-uri", "sqlite:///x.db"), "a source now"),
        (("--explain", "log.jsonl"), "is now tracewheel data explain FILE"),
        (("no_such:thing",), "no_such:thing: no such trace file"),
        (("LOG", "--set", "seed=1"), "only ingest settings"),
        (("LOG", "--set", "ingest.colour=red"), "colour: no such key"),
        (("LOG", "--set", "ingest=3"), "holds keys, not a value"),
    ],
)
def test_errors_say_what_to_do(run, log, profile, tmp_path, arguments, message):
    named = [{"LOG": str(log), "PROFILE": str(profile)}.get(argument, argument) for argument in arguments]
    code, out, err = run(*named, "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_file_of_outcomes_alone_is_joined_to_a_folder(run, tmp_path):
    (tmp_path / "log.jsonl").write_text(json.dumps(RECORD | {"id": "a", "session": "s"}) + "\n")
    assert run(tmp_path / "log.jsonl", "--out", tmp_path / "out")[0] == 0
    (tmp_path / "said.csv").write_text("Conversation ID,Rating\ns,5\ns,none\nother,1\n")
    given = ("--outcomes", tmp_path / "said.csv", "--set", "ingest.outcomes.success_from={label: 4}", "--out", tmp_path / "out")
    code, out, _ = run(*given)
    assert code == 0 and "rows without an outcome: 1, the first outcomes/said.csv:3" in " ".join(out.split())
    assert "without their trace yet" in out
    assert pandas.read_parquet(tmp_path / "out/traces.parquet")["outcome"].tolist() == [1.0]
    code, _, err = run("--outcomes", tmp_path / "gone.csv", "--out", tmp_path / "out")
    assert code == 2 and "gone.csv: no such trace file (ingest.outcomes.paths)" in err
    assert run("--out", tmp_path / "out")[0] == 2
