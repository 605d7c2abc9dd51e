"""`dvc.yaml` declares the flow's stages and makes the same bytes; DVC's own commands work on it as its docs describe them."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flows.commands.stage.keys import STAGES as KEYED
from flows.retrain import learn
from flows.setup import resolve_config
from tasks.engine.drivers import DirectDriver
from tasks.engine.keys import NEEDS, sections_of, stage_keys
from tasks.engine.reading import begin_run
from tracewheel.config import load_config
from tracewheel.core.fingerprint import digest_of

ROOT = Path(__file__).parents[2]
PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text())
FOLDERS = ("tracewheel", "tasks", "flows", "configs", "data", ".dvc", "plugins/projects")
FILES = (".dvcignore", ".gitignore", "constraints.txt", "dvc.yaml", "dvc.lock", "params.yaml")
# Without stages that take no profile.
STAGES = {
    name: stage.get("do", stage) for name, stage in PIPELINE["stages"].items() if name not in ("make_traces", "base_policy")
}
PLOTS = {name for plot in PIPELINE["plots"] for name in plot}


class Clone:
    """A fresh clone of the project, with DVC and git."""

    def __init__(self, folder, environment):
        self.folder = folder
        path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{environment['PATH']}"
        self._environment = environment | {"PATH": path, "COLUMNS": "200"}

    def call(self, *arguments):
        done = subprocess.run(arguments, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=2400)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def dvc(self, *arguments):
        return self.call(sys.executable, "-m", "dvc", *arguments)

    def git(self, *arguments):
        return self.call("git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments)

    def json(self, *arguments):
        return json.loads(self.dvc(*arguments, "--json"))

    def plots(self, *arguments):
        """The points of each plot on the page that a command writes."""
        page = Path(self.dvc("plots", *arguments).strip().removeprefix("file://")).read_text()
        specs = [json.JSONDecoder().raw_decode(page[found.end() :])[0] for found in re.finditer("var spec = ", page)]
        return {spec["title"]["text"]: spec["data"]["values"] for spec in specs}


@pytest.fixture(scope="module")
def clone(tmp_path_factory, environment):
    """A fresh clone whose params file is that of a very short profile."""
    folder = tmp_path_factory.mktemp("clone")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "cache", "tmp"))
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    (folder / "bin").mkdir()
    shim = folder / "bin" / "tracewheel"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m flows.cli "$@"\n')
    shim.chmod(0o755)
    made = Clone(folder, environment)
    sizes = "curation={train_tasks: 8, validation_tasks: 4, held_out_tasks: 12, harder_tasks: 4}"
    params = made.call("tracewheel", "stage", "params", "configs/tiny-short.yaml", "--set", sizes)
    (folder / "params.yaml").write_text(params)
    made.git("init", "--quiet")
    made.git("add", ".")
    made.git("commit", "--quiet", "--message", "clone")
    return made


def test_the_params_file_is_the_default_profile(run):
    assert load_config(ROOT / "params.yaml") == load_config(ROOT / "configs" / "tiny.yaml")
    code, printed, _ = run("stage", "params", "configs/tiny.yaml")
    assert code == 0 and printed == (ROOT / "params.yaml").read_text()


def test_each_stage_declares_the_sections_that_it_reads():
    assert set(KEYED) == NEEDS.keys()
    for name, stage in STAGES.items():
        if name == "keys":
            continue
        key = {"validate": "evaluate"}.get(name, name)
        assert set(stage["params"]) == set(sections_of(key)), name
        assert f"data/keys/{key}.json" in stage["deps"], name
        assert "params.yaml" not in stage["deps"], name


def test_a_setting_makes_no_stage_run_that_does_not_read_it():
    before = stage_keys(load_config(ROOT / "params.yaml"))
    for setting, runs in {
        "learner.learning_rate=0.003": {"improve"},
        "training.iterations=3": {"improve"},
        "gate.confidence=0.99": {"gate"},
        "curation.train_tasks=8": {"curate"},
        "aims.harder=0.9": set(),
    }.items():
        after = stage_keys(load_config(ROOT / "params.yaml", [setting]))
        assert {stage for stage in before if before[stage] != after[stage]} == runs, setting


def test_every_command_of_the_pipeline_parses():
    from flows.cli import build_parser

    cases = [case for name in ("validate", "evaluate") for case in PIPELINE["stages"][name]["foreach"].values()]
    for stage in STAGES.values():
        for command in stage["cmd"] if isinstance(stage["cmd"], list) else [stage["cmd"]]:
            for case in cases:
                filled = command.replace("${item.policy}", case["policy"]).replace("--demonstrations ${item}", "")
                build_parser().parse_args(filled.split()[1:])


def test_the_data_stages_make_the_same_bytes(clone, monkeypatch):
    assert "up to date" in clone.dvc("status", "make_traces", "base_policy"), "mend: dvc commit --force make_traces base_policy"
    clone.dvc("repro", "curate")
    monkeypatch.chdir(clone.folder)
    from tracewheel.curation.curate import curate
    from tracewheel.traces.ingest import ingest

    config, data = load_config("params.yaml"), clone.folder / "data"
    ingest(config.ingest, clone.folder / "runs" / "ingested")
    curate(config, clone.folder / "runs" / "ingested", clone.folder / "runs" / "curated")
    for name in ("ingested", "curated"):
        assert digest_of(data / name) == digest_of(clone.folder / "runs" / name)
    assert "up to date" in clone.dvc("repro", "curate")


@pytest.fixture(scope="module")
def reproduced(clone):
    """The clone after `dvc repro`, committed."""
    clone.dvc("repro")
    clone.git("commit", "--all", "--quiet", "--message", "repro")
    return clone


@pytest.fixture(scope="module")
def experiment(reproduced):
    """What `dvc exp run` printed; its results are in the workspace from now on."""
    return reproduced.dvc("exp", "run", "--name", "faster", "-S", "learner.learning_rate=0.003")


@pytest.mark.slow
class TestOnceReproduced:
    def test_the_flow_makes_the_same_bytes(self, reproduced, command, monkeypatch):
        folder = reproduced.folder
        done = command("retrain", "params.yaml", "--run-dir", "runs/flow", cwd=folder)
        assert done.returncode in (0, 3), done.stderr
        monkeypatch.chdir(folder)
        run = begin_run(resolve_config("params.yaml", [], "runs/flow"), driver=DirectDriver())
        outcome = learn(run)
        expected = {"ingested": outcome.traces, "curated": outcome.curated}
        expected |= {
            f"warm_start/{kind}": outcome.policies[name].entry
            for kind, name in {"all": "warm_start", "verified": "warm_start_verified"}.items()
        }
        for stage in ("rollout", "score", "update"):
            found = [entry for entry in run.used if entry.stage == stage]
            expected |= {f"rl/{number}/{stage}": entry for number, entry in enumerate(found, start=1)}
        for name, splits in outcome.evaluations.items():
            expected |= {f"evaluation/{name}/{split}": entry for split, entry in splits.items()}
        (gate,) = [entry for entry in run.used if entry.stage == "gate"]
        expected["gate"] = gate
        assert {name: digest_of(folder / "data" / name) for name in expected} == {
            name: entry.digest for name, entry in expected.items()
        }

    def test_the_iterations_are_those_of_the_profile(self, reproduced):
        iterations = {path.name for path in (reproduced.folder / "data" / "rl").iterdir() if path.name.isdigit()}
        assert iterations == {"0", "1", "2"}
        assert "up to date" in reproduced.dvc("status") and "up to date" in reproduced.dvc("repro")

    def test_metrics_show(self, reproduced):
        metrics = reproduced.json("metrics", "show")[""]["data"]["data/figures/metrics.json"]["data"]
        assert metrics.keys() == {"cost", "eval", "gate", "train"}
        assert metrics["eval"].keys() == {"base", "warm_start", "warm_start_verified", "rl"}
        assert sum(len(metrics[group]) for group in ("cost", "gate", "train")) <= 16
        verdict = json.loads((reproduced.folder / "data" / "gate" / "gate.json").read_text())
        assert metrics["gate"]["difference"] == pytest.approx(verdict["difference"], abs=1e-5)
        held_out = json.loads((reproduced.folder / "data/evaluation/rl/held_out/evaluation.json").read_text())
        assert metrics["eval"]["rl"]["held_out"] == pytest.approx(held_out["greedy"]["rate"], abs=1e-5)
        assert metrics["train"]["iterations"] == 2 and metrics["cost"]["training_episodes"] == 48

    def test_plots_show(self, reproduced):
        plots = reproduced.plots("show")
        assert len(plots) == len(PLOTS)
        assert {point["iteration"] for point in plots["Success on the validation split"]} == {"0", "1", "2"}
        policies = {"deployed", "base", "warm_start", "warm_start_verified", "rl"}
        for title in ("Greedy success by tier", "Greedy success by family"):
            assert {point["policy"] for point in plots[title]} == policies
            assert all(
                0 <= float(point["low"]) <= float(point["success"]) <= float(point["high"]) <= 1 for point in plots[title]
            )

    def test_an_experiment_runs_only_what_reads_the_setting(self, experiment):
        for name in ("ingest", "curate", "warm_start@all", "warm_start@verified", "validate@base", "evaluate@base"):
            assert f"Stage '{name}' didn't change, skipping" in experiment
        for name in ("keys", "improve", "figures"):
            assert f"Running stage '{name}'" in experiment
        assert "Ran experiment(s): faster" in experiment

    @pytest.mark.usefixtures("experiment")
    def test_metrics_and_params_diff(self, reproduced):
        changed = reproduced.json("metrics", "diff", "HEAD", "faster")["data/figures/metrics.json"]
        assert changed["train.learning_rate"] == {"old": 0.001, "new": 0.003, "diff": pytest.approx(0.002)}
        params = reproduced.json("params", "diff", "HEAD", "faster")["params.yaml"]["learner.learning_rate"]
        assert (params["old"], params["new"]) == (0.001, 0.003)

    @pytest.mark.usefixtures("experiment")
    def test_plots_diff(self, reproduced):
        plots = reproduced.plots("diff", "HEAD", "faster")
        assert len(plots) == len(PLOTS)
        for title, points in plots.items():
            assert {point["rev"] for point in points} == {"HEAD", "faster"}, title

    @pytest.mark.usefixtures("experiment")
    def test_exp_show(self, reproduced):
        table = reproduced.dvc("exp", "show", "--csv").splitlines()
        columns = table[0].split(",")
        assert {"learner.learning_rate", "train.learning_rate", "eval.rl.held_out", "gate.verdict"} <= set(columns)
        (row,) = [line for line in table[1:] if ",faster," in line or line.startswith("faster,")]
        assert "0.003" in row

    def test_push_and_pull(self, reproduced, tmp_path):
        made = {name: digest_of(reproduced.folder / "data" / name) for name in ("ingested", "curated", "rl", "figures")}
        reproduced.dvc("remote", "add", "--local", "--default", "store", str(tmp_path / "remote"))
        assert "pushed" in reproduced.dvc("push")
        shutil.rmtree(reproduced.folder / ".dvc" / "cache")
        for name in made:
            shutil.rmtree(reproduced.folder / "data" / name)
        assert "fetched" in reproduced.dvc("pull")
        assert {name: digest_of(reproduced.folder / "data" / name) for name in made} == made
        assert "up to date" in reproduced.dvc("status")
