"""A run made again in a process of its own: in which environment, until where, and what is said where it fails."""

import json
import sys

import pytest

from tracewheel import FinishedRun, InfrastructureError, run_named
from tracewheel_lab.reproduce.causes import environment_differences
from tracewheel_lab.reproduce.rerun import _environment, lineage_here, make_again


@pytest.fixture
def began(tmp_path):
    """Makes a run of two entries, as `begin_again` would begin it in `out`, with these facts in its lineage."""

    def begin(**lineage):
        for record in (tmp_path / "work" / "run", tmp_path / "out" / "work" / "run"):
            record.mkdir(parents=True)
            (record / "config.yaml").write_text("threads: 1\n")
            (record / "lineage.json").write_text(json.dumps({"started": "", **lineage}))
        (tmp_path / "work" / "run" / "entries.txt").write_text("ingest-1\ncurate-2\n")
        return FinishedRun(run_named(str(tmp_path / "work" / "run")))

    return begin


@pytest.fixture
def program(tmp_path):
    """Writes the code that stands for the run's, and makes the run with it."""
    (tmp_path / "flows").mkdir()

    def make(run, code, stages=2):
        (tmp_path / "flows" / "cli.py").write_text(code)
        said = []
        place = {"root": tmp_path, "python": sys.executable, "stages": stages, "say": said.append}
        return make_again(run, tmp_path / "out", tmp_path, **place), said

    return make


ENTRIES = "import pathlib, sys; out = pathlib.Path(sys.argv[-1]) / 'run' / 'entries.txt'\n"


def test_a_run_that_ends_is_read_from_its_new_folder(began, program, tmp_path):
    code = f"{ENTRIES}out.write_text('ingest-1 curate-2'); print('made'); raise SystemExit(3)"
    made, said = program(began(), code)
    assert made.record.path == tmp_path / "out" / "work" / "run" and said == ["made"]


def test_a_run_is_stopped_when_it_asks_for_more_stages_than_are_wanted(began, program):
    code = f"{ENTRIES}import time\nout.write_text('ingest-1 curate-2'); time.sleep(60); raise SystemExit(1)"
    made, _ = program(began(), code, stages=1)
    assert len(made.entries) == 2


def test_a_run_that_fails_again_says_its_last_lines(began, program):
    with pytest.raises(InfrastructureError, match=r"exit code 2:\n.*no such key"):
        program(began(), "print('no such key: rollout.engine'); raise SystemExit(2)")


def test_the_settings_of_this_process_stay_out(began, tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_CBWR", "PREFECT_API_URL", "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "this process's")
    found = _environment(began(machine={"variables": {"OMP_NUM_THREADS": "2"}}), tmp_path)
    assert (found["OMP_NUM_THREADS"], found["HTTPS_PROXY"]) == ("2", "this process's")
    assert not {"MKL_CBWR", "PREFECT_API_URL", "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"} & found.keys()


def test_packages_and_machine_are_those_of_the_interpreter(began):
    run = began(packages={"pytest": "0.1", "no-such-package": "1"}, machine={"python": "CPython 2.7", "variables": {}})
    here = lineage_here(run, sys.executable)
    assert here["packages"] == {"pytest": pytest.__version__}
    assert here["machine"]["threads"] == 1
    said = environment_differences(run.lineage, here)
    assert f"packages: pytest 0.1 → {pytest.__version__}" in said
    assert any(line.startswith("machine: python CPython 2.7 → ") for line in said)
