"""The whole loop, on a very short profile."""

import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from flows.commands.command import find_commands
from flows.console.summary import show_summary
from flows.opening import tracked
from flows.retrain import learn
from flows.setup import resolve_config
from tasks.closing.report import write_report
from tasks.engine.drivers import DirectDriver
from tasks.engine.reading import begin_run
from tracewheel.config import load_config
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.out_folder import visible_files
from tracewheel.core.store import remove
from tracewheel.evaluation.wording import in_words
from tracewheel.policy.adapters import base_hash
from tracewheel.report.glossary import knows

KEYS = {"deployed", "base", "warm_start", "warm_start_verified", "rl"}


def test_json_output_holds_the_results(finished):
    _, done, summary = finished
    assert len(done.stdout.splitlines()) == 1
    for name in ("success", "sampled", "harder"):
        assert set(summary[name]) == KEYS
    assert all(0.0 <= rate <= 1.0 for rate in summary["success"].values())
    assert summary["sampled"]["deployed"] is None
    assert summary["n_held_out"] == 12
    assert {"verdict", "reasons", "difference", "interval"} <= set(summary["gate"])
    assert {"ingest", "curate", "warm_start", "rollout", "score", "update", "evaluate", "gate"} == set(summary["seconds"])
    assert summary["tokens"]["rollout"] > 0
    floor = summary["noise_floor"]["greedy"]
    assert (floor["difference"], floor["pairs"], floor["flipped"]) == (0.0, 12, 0)
    assert floor["interval"][0] == -floor["interval"][1] < 0.0, "no interval is without a width"
    assert summary["cached"] == []


def test_the_exit_code_follows_the_gates_verdict(finished):
    _, done, summary = finished
    assert done.returncode == {"promoted": 0, "refused": 3}[summary["gate"]["verdict"]]
    assert "Traceback" not in done.stderr


def test_each_stage_is_shown_with_its_state(finished):
    _, done, _ = finished
    for line in ("ingest", "curate", "warm_start all", "rollout 2", "update 2", "evaluate rl held_out", "gate"):
        assert any(
            shown.startswith(f"{line} ") and ("Completed" in shown or "Cached" in shown) for shown in done.stderr.splitlines()
        )


def test_the_record_holds_config_and_lineage(finished, profile, base):
    folder, _, summary = finished
    record = folder / summary["run_id"]
    assert set(yaml.safe_load((record / "config.yaml").read_text())) >= {"seed", "learner", "rollout"}
    assert json.loads((record / "template.json").read_text())["trainable"] is True
    lineage = json.loads((record / "lineage.json").read_text())
    assert lineage["inputs"]["base"] == base_hash(base)
    assert any(name.startswith("traces/") for name in lineage["inputs"])
    assert {"torch", "transformers", "prefect", "mlflow", "dvc"} <= set(lineage["packages"])
    assert json.loads((record / "gate.json").read_text()) == summary["gate"]
    assert json.loads((record / "start.json").read_text())["champion"] is None
    assert "</html>" in Path(summary["report"]).read_text()
    assert (Path(summary["adapter"]) / "adapter_model.safetensors").is_file()
    assert load_config(record / "config.yaml").seed == load_config(profile).seed


def test_everything_is_in_the_run_folder(finished):
    folder, _, summary = finished
    assert summary["mlflow_uri"] == f"sqlite:///{folder}/mlflow.db"
    assert {path.name for path in folder.iterdir()} >= {"store", "mlflow.db", summary["run_id"], "sampler.json", ".prefect"}
    assert not list(folder.rglob(".partial-*"))
    with closing(sqlite3.connect(folder / ".prefect" / "prefect.db")) as database:
        assert ("COMPLETED",) in database.execute("select state_type from flow_run").fetchall()


def test_the_table_of_outputs_knows_what_each_stage_writes(finished):
    """Otherwise a command would refuse to replace its own output."""
    folder, _, _ = finished
    known = {command.name.split()[-1].replace("-", "_"): command.writes for command in find_commands()}
    for entry in (folder / "store").iterdir():
        if writes := known.get(entry.name.rpartition("-")[0]):
            assert [name for name in visible_files(entry) if not writes.knows(name)] == []
            assert all((entry / name).exists() for name in writes.always)


def test_changed_tasks_name_trajectories_that_exist(finished):
    folder, _, summary = finished
    changes = json.loads((folder / summary["run_id"] / "changes.json").read_text())
    counts = [sum(row["change"] == change for row in changes) for change in ("gained", "lost")]
    assert counts == [summary["gate"]["gained"], summary["gate"]["lost"]]
    for row in changes:
        for side in (row["challenger"], row["baseline"]):
            assert side["trajectory"] in set(pd.read_parquet(folder / "store" / side["file"])["id"])


def test_the_next_run_on_other_traces_resumes_pass_rates_from_it(finished, entries):
    folder, _, summary = finished
    (curated,) = [name for name in entries(folder) if name.startswith("curate-")]
    (traces,) = [digest for name, digest in entries(folder).items() if name.startswith("ingest-")]
    links = json.loads((folder / "evidence.json").read_text())
    assert links == [{"traces": traces, "curated": curated, "began_with": None}]
    start = json.loads((folder / summary["run_id"] / "start.json").read_text())
    assert start["evidence"] is None and start["splits"] is None
    chain = json.loads((folder / "splits.json").read_text())
    assert chain["latest"]["curated"] == curated and list(chain["began"].values()) == [None]
    assert (folder / summary["run_id"] / "splits.parquet").is_file() and summary["splits"]["number"] == 1


def looks_of(folder):
    """The run's looks: none of one that changed nothing."""
    ledger = folder / "gates.json"
    return [gate for gate in json.loads(ledger.read_text()) if "candidate" not in gate] if ledger.is_file() else []


def test_a_gate_is_noted_once_where_it_asked_and_its_power_is_said_before_the_loop(finished):
    folder, done, summary = finished
    asked, gate = summary["best_iteration"] > 0, summary["gate"]
    noted = [(summary["run_id"], gate["level"])] if asked else []
    assert [(look["run"], look["level"]) for look in looks_of(folder)] == noted and gate["look"] == (1 if asked else None)
    assert asked or gate["says"] == "RL improved on no validation iteration; the challenger is the starting policy"
    said = " ".join(done.stderr.split())
    assert "you have 12" in said and said.index("you have 12") < said.index("rollout 1")


def test_mlflow_has_the_run(finished, profile):
    import mlflow

    _, _, summary = finished
    client = mlflow.MlflowClient(summary["mlflow_uri"])
    run = client.get_run(summary["mlflow_run"])
    assert run.info.status == "FINISHED"
    assert run.data.tags["tracewheel.run_id"] == summary["run_id"]
    assert run.data.params["training.iterations"] == "2"
    assert run.data.metrics["eval/held_out/rl/greedy"] == summary["success"]["rl"]
    assert [metric.step for metric in client.get_metric_history(summary["mlflow_run"], "rollout/reward")] == [1, 2]
    assert [name for name in run.data.metrics if not knows(name)] == []
    assert run.data.metrics["cost/tokens/rollout"] == summary["tokens"]["rollout"]
    validation = client.get_metric_history(summary["mlflow_run"], "eval/validation/sampled")
    assert {str(metric.step): metric.value for metric in validation} == {
        step: rates["sampled"] for step, rates in summary["validation"].items()
    }
    note = run.data.tags["mlflow.note.content"]
    assert in_words(summary["gate"])[0] in note and "| rl |" in note and "tracewheel dashboard" in note
    splits = {f"{split} tasks" for split in ("train", "validation", "held-out", "harder")}
    assert {item.dataset.name for item in run.inputs.dataset_inputs} == {"traces", "curated tasks"} | splits
    assert {item.path for item in client.list_artifacts(summary["mlflow_run"], "data")} == {
        "data/quality.html",
        "data/quality.json",
        "data/splits.parquet",
    }
    assert "leaks" not in summary and "tracewheel.leaks" not in run.data.tags
    assert {item.path for item in client.list_artifacts(summary["mlflow_run"])} >= {"report.html", "gate.json", "adapters"}
    (version,) = client.search_model_versions(f"name = '{load_config(profile).tracking.model_name}'")
    assert version.tags["adapter_digest"] == digest_of(Path(summary["adapter"]))
    assert version.description == note
    assert float(version.tags["gain"]) == pytest.approx(summary["gate"]["difference"], abs=1e-4)
    assert {"baseline", "gain_interval", "traces", "curated", "verdict"} <= set(version.tags)
    mlflow.set_tracking_uri(summary["mlflow_uri"])
    traces = mlflow.search_traces(
        locations=[run.info.experiment_id], run_id=summary["mlflow_run"], return_type="list", max_results=500
    )
    logged = {(trace.info.tags["policy"], trace.info.tags["split"]) for trace in traces}
    assert {(policy, split) for policy in KEYS - {"deployed"} for split in ("held_out", "harder")} <= logged


def test_a_second_run_reuses_everything_with_the_same_results(finished, profile, run_on_prefect):
    folder, _, summary = finished
    _, out, err = run_on_prefect("retrain", profile, "--run-dir", folder, "--json")
    repeated = json.loads(out)
    assert set(repeated["cached"]) == set(repeated["seconds"])
    for name in ("run_id", "success", "sampled", "harder", "gate", "mlflow_run", "model_version", "seconds", "tokens"):
        assert repeated[name] == summary[name]
    assert "Cached" in err and "Completed" not in err
    assert len(looks_of(folder)) == (summary["best_iteration"] > 0), "the same evidence spends no error twice"


@pytest.mark.usefixtures("finished")
class TestOnAFinishedRun:
    def test_the_plan_finds_everything_stored(self, finished, profile, run):
        folder, _, summary = finished
        code, out, _ = run("retrain", profile, "--run-dir", folder, "--dry-run", "--json")
        plan = json.loads(out)
        assert code == 0
        assert plan["complete"]
        assert plan["run_id"] == summary["run_id"]
        assert plan["power"]["level"] == summary["gate"]["level"] or summary["best_iteration"] == 0
        assert plan["power"]["tasks"] == 12
        assert [(stage["stored"], stage["estimated_seconds"]) for stage in plan["stages"]] == [
            (stage["results"], 0.0) for stage in plan["stages"]
        ]

    def test_the_plan_starts_at_the_first_stage_that_a_changed_setting_affects(self, finished, profile, run):
        folder, _, _ = finished
        plan = json.loads(run("retrain", profile, "--run-dir", folder, "--set", "learner.kl=0.5", "--dry-run", "--json")[1])
        stored = {stage["stage"]: (stage["stored"], stage["results"]) for stage in plan["stages"]}
        assert plan["next"] == "rollout 1 of 2"
        first, *_ = plan["made"]
        assert first == {"label": "rollout 1 of 2", "why": "the tasks' posterior chooses other tasks"}
        assert stored["curate"] == (1, 1)
        assert stored["warm_start"] == (2, 2)
        assert stored["rollout"] == (0, 2)
        assert plan["estimated_seconds"] > 0
        assert plan["estimate"] == "from earlier runs in this work folder"

    def test_the_plan_counts_the_episodes_of_the_run(self, finished, profile, run, tmp_path):
        folder, _, _ = finished
        plan = json.loads(run("retrain", profile, "--run-dir", tmp_path, "--dry-run", "--json")[1])
        assert plan["next"] == "ingest" and not plan["complete"]
        planned = {stage["stage"]: stage["results"] for stage in plan["stages"]}
        made = Counter(path.name.rpartition("-")[0] for path in (folder / "store").iterdir() if path.name[0] != ".")
        chosen_start = made["evaluate"] == planned["evaluate"] - 2  # then its final evaluations are the start's
        assert planned == made | ({"evaluate": made["evaluate"] + 2} if chosen_start else {})
        episodes = sum(len(pd.read_parquet(path)) for path in (folder / "store").glob("rollout-*/trajectories.parquet"))
        assert {stage["stage"]: stage["work"] for stage in plan["stages"]}["rollout"] == f"{episodes} episodes"
        assert not (tmp_path / "store").exists()

    @pytest.mark.slow
    def test_the_loop_by_itself_makes_the_same_bytes_and_reuses_what_is_stored(self, finished, profile, command, tmp_path):
        folder, _, summary = finished
        run = begin_run(resolve_config(str(profile), [], str(folder)), driver=DirectDriver())
        outcome = learn(run)
        start = outcome.policies["warm_start_verified"].entry
        out, work = tmp_path / "rl", tmp_path / "work"
        options = ["--curated", outcome.curated.path, "--start", start.path, "--out", out, "--run-dir", work, "--json"]
        done = command("stage", "improve", profile, *options)
        assert done.returncode == 0, done.stderr
        made = {
            f"{number}/{stage}": entry.digest
            for stage in ("rollout", "score", "update")
            for number, entry in enumerate((entry for entry in run.used if entry.stage == stage), start=1)
        }
        assert {name: digest_of(out / name) for name in made} == made
        assert json.loads(done.stdout)["best_iteration"] == summary["best_iteration"]
        assert digest_of(out / "best" / "adapter") == digest_of(outcome.policies["rl"].weights)
        whole = digest_of(out)
        remove(next((work / "store").glob("update-*")))
        again = command("stage", "improve", profile, *options)
        assert again.returncode == 0, again.stderr
        assert digest_of(out) == whole
        states = Counter(line.split()[-3] for line in again.stderr.splitlines() if line.endswith(" s"))
        assert states["Completed"] == 1 and states["Cached"] > 6

    def test_status_lists_the_run(self, finished, profile, run):
        folder, _, summary = finished
        status = json.loads(run("runs", "status", profile, "--run-dir", folder, "--json")[1])
        (listed,) = status["runs"]
        assert (listed["run_id"], listed["state"], listed["verdict"]) == (
            summary["run_id"],
            "complete",
            summary["gate"]["verdict"],
        )

    def test_the_report_can_be_written_again(self, finished, profile, run, tmp_path):
        folder, _, summary = finished
        code, _, err = run("runs", "report", profile, "--run-dir", folder, "--out", tmp_path / "again.html", "--json")
        assert code == 0, err
        assert (tmp_path / "again.html").read_bytes() == Path(summary["report"]).read_bytes()

    @pytest.mark.usefixtures("prefect_harness")
    def test_an_allowed_leak_is_on_the_run_its_summary_and_its_page(self, finished, profile, tmp_path, capsys):
        """The same stages with a curation that reports a leak, as only broken code of ours would."""
        folder, _, _ = finished
        shutil.copytree(folder, tmp_path / "run")
        run = begin_run(resolve_config(str(profile), [], str(tmp_path / "run")), driver=DirectDriver())
        outcome = learn(run)
        said = "nothing may be on two sides: user u1 is in held_out and train"
        result = outcome.curated.result | {"leaks": {"found": True, "says": said}}
        outcome = replace(outcome, curated=replace(outcome.curated, result=result))
        with tracked(run) as run:
            summary = write_report.fn(run, outcome, "1")
        assert summary["leaks"] == said == run.record.summary["leaks"]
        assert said in Path(summary["report"]).read_text()
        show_summary(summary)
        assert f"every figure is in doubt: {said}" in capsys.readouterr().out

    @pytest.mark.usefixtures("prefect_harness")
    def test_without_comparisons_a_run_trains_and_evaluates_what_the_gate_needs(self, finished, profile, tmp_path, capsys):
        """The same run with the defaults of `comparison`, from the same stored results: the same verdict from fewer of them."""
        folder, _, summary = finished
        shutil.copytree(folder, tmp_path / "run")
        run = begin_run(resolve_config(str(profile), ["comparison={}"], str(tmp_path / "run")), driver=DirectDriver())
        outcome = learn(run)
        baseline = summary["gate"]["baseline"]
        assert list(outcome.evaluations) == [baseline, "rl"] and outcome.repeated is None
        assert [entry.stage for entry in run.used].count("warm_start") == 1
        with tracked(run) as run:
            found = write_report.fn(run, outcome, "1")
        assert list(found["success"]) == ["deployed", baseline, "rl"] and "noise_floor" not in found
        assert found["success"] == {name: summary["success"][name] for name in found["success"]}
        for name in ("verdict", "difference", "interval"):
            assert found["gate"][name] == summary["gate"][name]
        page = Path(found["report"]).read_text()
        assert "After RL" in page and "Warm start, all logs" not in page
        show_summary(found)
        assert "warm start, all logs" not in capsys.readouterr().out

    def test_promote_exits_by_the_verdict_and_registers_no_second_version(self, finished, profile, run):
        folder, _, summary = finished
        code, out, _ = run("champion", "promote", profile, "--run-dir", folder, "--json")
        assert code == {"promoted": 0, "refused": 3}[summary["gate"]["verdict"]]
        result = json.loads(out)
        assert result["verdict"] == summary["gate"]["verdict"]
        assert result["model_version"] == summary["model_version"]

    def test_a_run_that_is_not_stored_cannot_be_reported(self, profile, run, tmp_path):
        code, _, err = run("runs", "report", profile, "--run-dir", tmp_path)
        assert code == 2
        assert "run `tracewheel retrain` first" in err
