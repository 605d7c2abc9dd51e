"""A key holds what a result depends on: a line in a module voids the results of stages that run it, and no others."""

import hashlib
import json
import os
import random
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

from tasks.engine import kinds
from tasks.engine.stage_code import TASKS
from tracewheel.config import load_config, load_stored_config
from tracewheel.core import fingerprint
from tracewheel.core.run_record import find_runs
from tracewheel.core.store import FACTS
from tracewheel.core.tool_formats import FORMATS
from tracewheel.core.types import content_hash
from tracewheel.gateway.dialects.dialect import DIALECTS

ROOT = Path(__file__).parents[2]
SAMPLED = 60
# Imported by a run beside its stages: what opens and steers it, keeps its records and shows it, and packages' doors.
BESIDE = (
    "tracewheel.chat.reference", "tracewheel.chat.template_check", "tracewheel.chat.token_page",
    "tracewheel.config", "tracewheel.core", "tracewheel.dashboard", "tracewheel.evaluation", "tracewheel.lineage",
    "tracewheel.operations", "tracewheel.policy.template", "tracewheel.report", "tracewheel.rollout.fleet",
    "tracewheel.rollout.foresight", "tracewheel.rollout.measured_pass", "tracewheel.rollout.order_book",
    "tracewheel.rollout.prompt_lengths", "tracewheel.rollout.worker_process", "tracewheel.sampling", "tracewheel.traces",
    "tracewheel.curation.replayed_traces",
)  # fmt: skip
AT_EXIT = """
import atexit, json, os, sys
from pathlib import Path
def note():
    names = sorted(name for name in sys.modules if name.partition(".")[0] == "tracewheel")
    Path(os.environ["IMPORTED"], f"{os.getpid()}.json").write_text(json.dumps(names))
atexit.register(note)
"""


def changed(monkeypatch, tmp_path, module):
    """Append a constant to a module, as keys read it."""
    original = fingerprint._source_module

    def read(path, stamp, name):
        if name != module:
            return original(path, stamp, name)
        copy = tmp_path / path.name
        copy.write_text(f"{path.read_text()}\nADDED = 1\n")
        digest = hashlib.sha256(name.encode()).hexdigest()
        return original(copy, int(digest[:8], 16), name)

    monkeypatch.setattr(fingerprint, "_source_module", read)
    fingerprint._parts_of.cache_clear()


@pytest.fixture
def unchanged():
    yield
    fingerprint._parts_of.cache_clear()


def stages_of(folder):
    """The stages of a run's entries, with the hash of the code that each was made with."""
    facts = [json.loads(path.read_bytes()) for path in (folder / "store" / FACTS).glob("*.json")]
    names = [path.name.rpartition("-")[0] for path in (folder / "store" / FACTS).glob("*.json")]
    return {name: fact["made"]["code"] for name, fact in zip(names, facts, strict=True)}


def void(config, stages):
    """The stages whose code is no longer that of the stored results."""
    return {stage for stage, code in stages.items() if content_hash(TASKS[stage].code_parts(config)) != code}


def profile_of(folder):
    (run,) = find_runs(folder)
    return load_stored_config(run.path)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("module", "voided"),
    [
        ("tracewheel_worlds.patch.diff", set()),
        ("tracewheel.environments.order_desk.wording", set()),
        ("tracewheel.config.operations", set()),
        ("tracewheel.dashboard.app", set()),
        ("tracewheel_graders.judges.judge", set()),
        ("tracewheel_dialects.anthropic", set()),
        ("tracewheel.engines.vllm_core", set()),
        ("tracewheel.traces.readers.openai", {"ingest"}),
        ("tracewheel.learner.losses.clip", {"update"}),
        ("tracewheel.scoring.verifiers.workspace", {"curate", "warm_start", "rollout", "score", "evaluate"}),
    ],
)
def test_a_line_voids_the_results_that_it_takes_part_in(finished, monkeypatch, tmp_path, module, voided):
    folder, place = finished[0], Path(*module.split(".")).with_suffix(".py")
    assert (ROOT / place).is_file() or list((ROOT / "plugins").glob(f"*/{place}"))
    config, stages = profile_of(folder), stages_of(folder)
    fingerprint._parts_of.cache_clear()
    assert void(config, stages) == set()
    changed(monkeypatch, tmp_path, module)
    assert void(config, stages) == voided & stages.keys()


def test_another_default_that_no_stage_reads_voids_nothing():
    path = ROOT / "configs" / "tiny-short.yaml"
    one, other = load_config(path), load_config(path, ["schedule.currency=CHF"])
    assert one.schedule != other.schedule
    for task in TASKS.values():
        assert task.settings(one) == task.settings(other) and task.code_parts(one) == task.code_parts(other)


def test_a_dialect_counts_where_a_program_may_speak_it():
    path = ROOT / "configs" / "tiny-short.yaml"
    dialects = {DIALECTS.place(name).partition(":")[0] for name in DIALECTS}
    alone, programs = load_config(path), load_config(path, ['rollout.harness={"command": ["python", "agent.py"]}'])
    assert not any(name.startswith("tracewheel.gateway") for task in TASKS.values() for name in task.code_parts(alone))
    counted = {stage: dialects & task.code_parts(programs).keys() for stage, task in TASKS.items()}
    assert {stage for stage, found in counted.items() if found == dialects} >= {"rollout", "evaluate", "collect"}
    assert all(found in (dialects, set()) for found in counted.values()) and not counted["update"]


def test_a_tool_format_of_a_wheel_counts_where_it_is_used(monkeypatch):
    module = pytest.importorskip("tracewheel_formats.mistral").__name__
    monkeypatch.setitem(FORMATS.wheels, "own", EntryPoint("own", f"{module}:MistralFormat", FORMATS.group))
    path = ROOT / "configs" / "tiny-short.yaml"
    held = {}
    for name in ("hermes", "auto", "own"):
        config = load_config(path, [f"policy.tool_format={name}"])
        held[name] = {stage for stage, task in TASKS.items() if module in task.code_parts(config)}
    assert held["hermes"] == set() and held["own"] == held["auto"] >= {"warm_start", "rollout", "evaluate"}
    assert not held["own"] & {"ingest", "curate"}


HARNESS = {"command": [sys.executable, str(ROOT / "examples/openai_agent.py")], "preload": ["openai.resources.chat", "httpx"]}


@pytest.fixture(scope="module", params=["tiny-short", "harness"])
def observed(request, profile, environment, tmp_path_factory):
    """A finished run: its folder, and the modules that its processes imported."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "site").mkdir()
    (folder / "imported").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(AT_EXIT)
    values = yaml.safe_load(profile.read_text())
    if request.param == "harness":
        values["rollout"]["harness"] = HARNESS
        values["training"]["iterations"] = 1
        values["comparison"] = {"warm_starts": "one", "policies": "gate"}
    (folder / "profile.yaml").write_text(yaml.safe_dump(values))
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "retrain", folder / "profile.yaml", "--run-dir", folder / "run"],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": f"{folder / 'site'}{os.pathsep}{ROOT}", "IMPORTED": str(folder / "imported")},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode in (0, 3), done.stderr
    imported = {name for file in (folder / "imported").iterdir() for name in json.loads(file.read_text())}
    return folder / "run", imported


@pytest.mark.slow
@pytest.mark.usefixtures("unchanged")
def test_a_line_in_a_sampled_module_voids_what_ran_it(observed, monkeypatch, tmp_path):
    folder, imported = observed
    config, stages = profile_of(folder), stages_of(folder)
    fingerprint._parts_of.cache_clear()
    assert void(config, stages) == set()
    paths = [path for path in sorted((ROOT / "tracewheel").rglob("*.py")) if path.name != "__init__.py"]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    for module in random.Random(0).sample(modules, SAMPLED):
        with monkeypatch.context() as patched:
            changed(patched, tmp_path, module)
            voided = void(config, stages)
        if module not in imported:
            assert not voided, f"{module} was never imported"
        reached = {name for name, task in TASKS.items() if module in kinds._reached(task.code_of(config).modules)}
        assert voided == reached & stages.keys()
        if module in imported and not module.startswith(BESIDE):
            assert reached, f"{module} was imported, and is on the road of no stage"
