"""A stage as a Prefect task: its key, its reuse, its retries."""

import importlib.metadata
import random
import re
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import get_args

import grimp
import pandas
import prefect
import pytest
from prefect.artifacts import Artifact
from pydantic import ValidationError

from tasks.engine.artifacts import StageProgress
from tasks.engine.drivers import DirectDriver
from tasks.engine.inputs import input_digests
from tasks.engine.run import Policy, Silent, settings_for
from tasks.engine.stage import stage_task
from tasks.stages.champion import load_champion
from tasks.stages.curate import curate_tasks
from tasks.stages.evaluate import evaluate_policy
from tasks.stages.gate import decide_gate
from tasks.stages.ingest import ingest_traces
from tasks.stages.rollout import collect_groups, roll_out
from tasks.stages.score import score_trajectories
from tasks.stages.update import update_policy
from tasks.stages.warm_start import warm_start_policy
from tracewheel.config import GateConfig, RetrainConfig, Sections
from tracewheel.config.profile import StageName
from tracewheel.core import fingerprint
from tracewheel.core.errors import DataError, InfrastructureError, TimeLimitError
from tracewheel.core.fingerprint import NUMERIC_PACKAGES, package_versions
from tracewheel.core.progress import Progress
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import TASKS_FILE
from tracewheel.environments.workspace.tasks import make_task
from tracewheel.policy.adapters import PolicyRef

# They read a profile or lock a folder and change no result. What a stage reads of the profile is in its key.
# httpx and mcp carry what environments in other processes answer; jsonschema gets an empty registry of referencing; a curation
# holds no turn to a grammar.
WITHOUT_INFLUENCE = {"filelock", "httpx", "llguidance", "mcp", "pydantic", "PyYAML", "referencing"}


class Counted(Sections):
    seed: int
    gate: GateConfig


@pytest.fixture
def counted():
    """A stage that counts its runs and raises the queued failures."""
    calls = []
    failures = []

    @stage_task("count", code="tracewheel.core.types", sections=Counted)
    def count_up(context, *, number, policy=None):
        """Write a number."""
        calls.append(number)
        if failures:
            raise failures.pop()
        (context.out / "number.txt").write_text(str(number))
        return {"number": number}

    count_up.calls, count_up.failures = calls, failures
    return count_up


def entry(tmp_path, digest):
    return Entry("any", "key", tmp_path, digest, 0.0, {})


def test_a_stage_runs_without_prefect(counted, make_run):
    run = make_run()
    key = counted.key(run, {"number": 3})
    made = run.store.make("count", key, lambda out: counted.make(run, out, number=3))
    assert (made.path / "number.txt").read_text() == "3"
    assert run.store.find("count", key).result == {"number": 3}


def test_a_stage_over_its_limit_ends_and_is_made_by_the_next_run(make_run):
    slow = [60]

    @stage_task("wait", code="tracewheel.core.types", sections=Counted)
    def wait(context):
        time.sleep(slow.pop())
        return {}

    run = make_run(stage_seconds=0.2)
    run = replace(run, driver=DirectDriver())
    with pytest.raises(TimeLimitError, match=r"wait: over 0.2 s \(stage_seconds\); the same command continues"):
        wait(run)
    patient = replace(make_run(), driver=DirectDriver())
    assert run.record.run_id == patient.record.run_id, "the limit is no part of the run's identity"
    slow.append(0)
    assert not wait(patient).reused and wait(patient).reused


def test_a_damaged_result_is_made_again_and_that_is_said_and_recorded(counted, make_run):
    said = []
    reporter = Silent()
    reporter.say = said.append
    run = replace(make_run(), driver=DirectDriver(), reporter=reporter)
    made = counted(run, number=3)
    (run.store.root / ".facts" / f"{made.path.name}.json").write_text('{"digest": "')
    assert not counted(run, number=3).reused and counted(run, number=3).reused
    (sentence,), (noted,) = said, run.record.damaged
    assert f"damaged in the store, and made again: {made.path.name} (" in sentence and noted["flaw"] in sentence
    (made.path / "number.txt").write_text("4")
    assert not counted(run, number=3).reused
    assert "its files are not those that were written" in said[1] and len(run.record.damaged) == 2


def test_the_key_depends_on_settings_and_arguments(counted, make_run, tmp_path):
    run = make_run()
    key = counted.key(run, {"number": 1, "policy": run.base()})
    assert counted.key(make_run(learner={"kl": 0.5}, name="other"), {"number": 1, "policy": run.base()}) == key
    others = [
        counted.key(run, {"number": 2, "policy": run.base()}),
        counted.key(make_run(seed=1), {"number": 1, "policy": run.base()}),
        counted.key(make_run(gate={"confidence": 0.9}), {"number": 1, "policy": run.base()}),
        counted.key(run, {"number": 1, "policy": run.adapted("rl", entry(tmp_path, "a"))}),
        counted.key(run, {"number": 1, "policy": run.adapted("rl", entry(tmp_path, "b"))}),
        counted.key(run, {"number": 1, "policy": run.adapted("rl", entry(tmp_path, "b"), version=2)}),
        counted.key(run, {"number": 1, "policy": [entry(tmp_path, "b")]}),
    ]
    assert len({key, *others}) == 8
    renamed = counted.key(run, {"number": 1, "policy": run.adapted("other name", entry(tmp_path / "elsewhere", "a"))})
    assert renamed == others[3]


@pytest.fixture
def newer(monkeypatch):
    """Pretends that another version of a package is installed."""
    installed = importlib.metadata.version

    def pretend(package):
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "99" if name == package else installed(name))
        package_versions.cache_clear()

    yield pretend
    monkeypatch.undo()
    package_versions.cache_clear()


@pytest.mark.parametrize(
    ("package", "changed"),
    [
        ("hyperscan", {"ingest"}),
        ("google-re2", {"ingest", "curate", "score"}),
        ("phonenumbers", {"ingest"}),
        ("python-stdnum", {"ingest"}),
        ("orjson", {"ingest", "curate"}),
        ("rensa", {"curate"}),
        ("pandas", {"ingest", "curate", "score"}),
    ],
)
def test_a_package_version_is_in_the_key_of_stages_that_use_it(newer, make_run, package, changed):
    run = make_run()
    stages = {"ingest": ingest_traces, "curate": curate_tasks, "score": score_trajectories}
    before = {name: stage.key(run, {}) for name, stage in stages.items()}
    newer(package)
    assert {name for name, stage in stages.items() if stage.key(run, {}) != before[name]} == changed


@pytest.fixture(scope="module")
def imports():
    """Of the core and of the wheels that are installed, whose readers are part of ingest."""
    modules = ingest_traces.code_of(RetrainConfig(name="any", environment={"kind": "workspace"})).modules
    packages = {module.partition(".")[0] for module in modules}
    return grimp.build_graph(*sorted({"tracewheel", *packages}), include_external_packages=True)


@pytest.mark.parametrize("stage", [ingest_traces, curate_tasks], ids=["ingest", "curate"])
def test_a_stage_names_the_packages_that_its_code_imports(imports, stage):
    providers = importlib.metadata.packages_distributions()
    modules = stage.code_of(RetrainConfig(name="any", environment={"kind": "workspace"})).modules
    imported = set().union(*map(imports.find_upstream_modules, modules)) - sys.stdlib_module_names
    imported = {name for name in imported if not name.startswith("tracewheel")}
    named = {name.lower() for name in (*NUMERIC_PACKAGES, *stage.packages, *WITHOUT_INFLUENCE)}
    missing = {name: providers[name] for name in imported if not named & {provider.lower() for provider in providers[name]}}
    assert missing == {}


@pytest.fixture
def recording(tmp_path):
    """The two files of a recording; keys look at their bytes alone."""
    folder = tmp_path / "recording"
    folder.mkdir()
    (folder / "recording.json").write_text('{"id": "1"}')
    (folder / "calls.parquet").write_bytes(b"calls")
    return folder


@pytest.mark.parametrize("stage", [curate_tasks, roll_out, score_trajectories], ids=["curate", "rollout", "score"])
@pytest.mark.parametrize("name", ["recording.json", "calls.parquet"])
def test_a_recording_is_keyed_by_its_content(make_run, recording, stage, name):
    run = make_run(environment={"kind": f"recorded:{recording}"})
    before = stage.key(run, {})
    (recording / "notes.txt").write_text("no part of it")
    assert stage.key(run, {}) == before
    (recording / name).write_bytes((recording / name).read_bytes() + b" ")
    assert stage.key(run, {}) != before
    again = make_run(environment={"kind": f"recorded:{recording}"})
    assert again.record.run_id != run.record.run_id
    assert ingest_traces.key(again, {}) == ingest_traces.key(run, {})


def test_a_copied_recording_has_the_same_digest_but_its_own_tasks(make_run, recording, tmp_path):
    copy = shutil.copytree(recording, tmp_path / "copy")
    here, there = (make_run(environment={"kind": f"recorded:{folder}"}).config for folder in (recording, copy))
    first, second = (settings_for(config, ("environment",)) for config in (here, there))
    assert first["recording"] == second["recording"] == input_digests(there)["recording"]
    # Curated tasks name the folder that answers their calls, so the key holds it too.
    assert first["environment"] != second["environment"]


def test_a_missing_recording_is_reported_at_the_start(make_run, recording):
    with pytest.raises(DataError, match=r"none/recording\.json: no such file.*tracewheel data record"):
        make_run(environment={"kind": f"recorded:{recording}/none"})
    (recording / "calls.parquet").unlink()
    with pytest.raises(DataError, match=r"recording/calls\.parquet: no such file.*environment\.kind"):
        make_run(environment={"kind": f"recorded:{recording}"})


def test_a_benchmark_is_keyed_by_its_content(make_run, tmp_path):
    path = tmp_path / "benchmark.txt"
    changes = {"curation": {"decontamination": {"benchmarks": [str(path)]}}}
    with pytest.raises(DataError, match=r"benchmark\.txt: no such file.*decontamination\.benchmarks"):
        make_run(**changes)
    path.write_text("one question\n")
    run = make_run(**changes)
    before = curate_tasks.key(run, {})
    path.write_text("another question\n")
    assert curate_tasks.key(run, {}) != before
    assert make_run(**changes).record.run_id != run.record.run_id


def test_the_pseudonym_key_is_keyed_by_its_digest_alone(make_run, monkeypatch):
    monkeypatch.delenv("TRACEWHEEL_REDACTION_KEY", raising=False)
    run = make_run()
    keys, runs = {ingest_traces.key(run, {})}, {run.record.run_id}
    for secret in ("first long text", "second long text"):
        monkeypatch.setenv("TRACEWHEEL_REDACTION_KEY", secret)
        keys.add(ingest_traces.key(run, {}))
        runs.add(make_run().record.run_id)
        assert secret not in str(input_digests(run.config))
    assert len(keys) == len(runs) == 3


def test_a_policy_names_the_folder_of_its_adapter_or_whole_model(tmp_path):
    assert Policy("base", "data/base").ref().adapter is None
    rl = Policy("rl", "data/base", entry(tmp_path, "a"), 4)
    assert rl.ref() == PolicyRef("data/base", str(tmp_path / "adapter"), 4)
    (tmp_path / "model").mkdir()
    assert rl.ref() == PolicyRef(str(tmp_path / "model"), None, 4)


@pytest.mark.usefixtures("prefect_harness")
class TestInPrefect:
    def test_a_result_is_reused_while_the_store_holds_it(self, counted, make_run):
        run = make_run()
        first, second = counted(run, number=1), counted(run, number=1)
        assert counted.calls == [1]
        assert (first.reused, second.reused) == (False, True)
        assert second.path == first.path
        assert second.result == {"number": 1}
        assert [used.key for used in run.used] == [first.key]

    @pytest.mark.parametrize("damage", ["deleted", "changed"])
    def test_a_stale_result_is_never_returned(self, counted, make_run, damage):
        run = make_run()
        path = counted(run, number=1).path
        if damage == "deleted":
            path.rename(path.with_name("elsewhere"))
        else:
            (path / "number.txt").write_text("9")
        again = counted(run, number=1)
        assert counted.calls == [1, 1]
        assert (again.path / "number.txt").read_text() == "1"

    def test_two_work_folders_share_no_result(self, counted, make_run, tmp_path):
        counted(make_run(), number=1)
        other = counted(make_run(work_dir=str(tmp_path / "other")), number=1)
        assert counted.calls == [1, 1]
        assert other.path.is_relative_to(tmp_path / "other")

    def test_infrastructure_errors_are_retried(self, counted, make_run, monkeypatch):
        counted.failures.append(InfrastructureError("the server was away"))
        counted.task.retry_delay_seconds = 0
        assert counted(make_run(), number=1).result == {"number": 1}
        assert counted.calls == [1, 1]

    def test_input_errors_are_not_retried(self, counted, make_run):
        counted.failures.append(DataError("traces.jsonl: no such trace file"))
        with pytest.raises(DataError, match="no such trace file"):
            counted(make_run(), number=1)
        assert counted.calls == [1]


@pytest.mark.parametrize(
    ("stage", "sections"),
    [
        (ingest_traces, {"ingest"}),
        (curate_tasks, {"seed", "environment", "curation"}),
        (warm_start_policy, {"seed", "threads", "policy", "environment", "warm_start"}),
        (roll_out, {"seed", "threads", "policy", "environment", "rollout"}),
        (collect_groups, {"rollout"}),
        (score_trajectories, {"policy", "environment", "rubric"}),
        (update_policy, {"own_sampler", "certifies", "seed", "threads", "policy", "learner", "schedule_iterations"}),
        (evaluate_policy, {"seed", "threads", "policy", "environment", "rollout", "rubric", "evaluation"}),
        (decide_gate, {"gate"}),
        (load_champion, {"policy"}),
    ],
    ids=lambda value: getattr(value, "stage", ""),
)
def test_a_stage_is_keyed_by_the_sections_it_reads(stage, sections):
    assert set(stage.sections.keyed()) == sections


def evaluation_key(run, folder, tasks, **changes):
    """The key of an evaluation on the held-out ones of some tasks, of a curation in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    pandas.DataFrame([{"split": split, **task.to_record()} for split, task in tasks]).to_parquet(folder / TASKS_FILE)
    arguments = {"policy": run.base(), "curated": entry(folder, str(folder)), "split": "held_out", "samples": 1}
    return evaluate_policy.key(run, arguments | changes)


def test_an_evaluation_is_keyed_by_the_tasks_that_it_plays(make_run, tmp_path):
    run = make_run()
    first, second, other = (make_task("pattern", 2, random.Random(seed)) for seed in range(3))
    held = [("held_out", first), ("held_out", second)]
    key = evaluation_key(run, tmp_path / "a", [*held, ("train", other)])
    assert key == evaluation_key(run, tmp_path / "b", [("train", replace(other, prompt="Another.")), *held])
    for tasks in (held[:1], held[::-1], [*held, ("held_out", other)], [held[0], ("held_out", replace(second, goal={}))]):
        assert key != evaluation_key(run, tmp_path / "c", tasks)
    for changes in ({"samples": 2}, {"repeat": 1}, {"part": [0, 2]}, {"policy": run.adapted("rl", entry(tmp_path, "x"))}):
        assert key != evaluation_key(run, tmp_path / "a", held, **changes)
    assert key != evaluation_key(make_run(evaluation={"temperature": 0.5}), tmp_path / "a", held)


def test_an_evaluation_is_keyed_by_the_environment_s_code_and_what_that_imports(make_run, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    world, words = tmp_path / "keyed_world.py", tmp_path / "keyed_words.py"
    words.write_text("ANSWER = 1\n")
    world.write_text("from keyed_words import ANSWER\nclass World: ...\n")
    run = make_run(environment={"kind": "keyed_world:World"})
    held = [("held_out", make_task("pattern", 2, random.Random(0)))]
    keys = {evaluation_key(run, tmp_path / "a", held)}
    for file, text in ((words, "ANSWER = 2\n"), (world, "from keyed_words import ANSWER\nclass World: a = 1\n")):
        file.write_text(text)
        fingerprint._parts_of.cache_clear()  # it is read once in a process
        keys.add(evaluation_key(run, tmp_path / "a", held))
    assert len(keys) == 3


def test_a_stage_sees_its_sections_and_no_others(make_run):
    run = make_run()
    sections = roll_out.sections.of(run.config)
    assert sections.rollout == run.config.rollout
    assert sections.largest_rank == run.config.largest_rank
    with pytest.raises(AttributeError, match="learner"):
        sections.learner  # noqa: B018


@pytest.mark.usefixtures("prefect_harness")
def test_a_long_stage_has_a_progress_artifact():
    told = []

    @prefect.flow
    def long():
        progress = StageProgress("warm_start", told.append, every=0.2)
        for done in range(1, 4):
            progress.reached(Progress(done, 10, "steps", 7 * done))
            time.sleep(0.3)
        during = Artifact.get("warm-start-progress")
        progress.ended()
        return (during.data, during.description), Artifact.get("warm-start-progress").data

    assert long() == ((30.0, "3 of 10 steps, 21 tokens"), 100.0)
    assert [progress.done for progress in told] == [1, 2, 3]


def test_a_time_limit_may_be_for_one_stage(make_run):
    run = make_run(stage_seconds={"update": 5, "curate": 0.5})
    assert [run.config.seconds_for(stage) for stage in ("update", "curate", "ingest")] == [5, 0.5, None]
    with pytest.raises(ValidationError, match="stage_seconds"):
        make_run(stage_seconds={"upgrade": 5})
    found = set()
    for path in (Path(__file__).parents[2] / "tasks").rglob("*.py"):
        found |= set(re.findall(r'@stage_task\(\s*"(\w+)"', path.read_text()))
    assert found == set(get_args(StageName))
