"""Our exports before the validators of the projects whose formats they are, each in an environment of its own.

`make setup-standards` installs them into `.venv-standards` (or where TRACEWHEEL_STANDARDS says).
"""

import copy
import json
import os
import subprocess
from pathlib import Path

import pytest

from flows.cli import main
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.config import RolloutConfig
from tracewheel.core.files import write_records
from tracewheel.dashboard.library import unpack_demo
from tracewheel.engines.base import Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import load_base
from tracewheel.rollout.rollout import RolloutPlan, run_episodes

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
ENVIRONMENTS = Path(os.environ.get("TRACEWHEEL_STANDARDS", Path(__file__).parents[3] / ".venv-standards"))


def checked(project, folder):
    """What a project's validator says of a folder of exports."""
    python = ENVIRONMENTS / project / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} does not exist; install it with `make setup-standards`")
    check = "check_atif.py" if project == "harbor" else "check_openenv.py"
    done = subprocess.run([python, HERE / check, folder / "episodes"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def export(source, form, out):
    assert main(["export-traces", str(source), "--format", form, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    work = unpack_demo(tmp_path_factory.mktemp("validators"))
    return next(path.parent for path in sorted(work.glob("*/loop.json")))


@pytest.fixture(scope="module")
def forked(config, base, renderer, tasks, tmp_path_factory):
    """Episodes of the tiny policy under a template that rewrites earlier turns: a row for each turn."""
    tokenizer = copy.deepcopy(renderer.tokenizer)
    said = "{{- message.content or '' -}}"
    tokenizer.chat_template = tokenizer.chat_template.replace(
        said, "{%- if not loop.last -%}{{- 'step ' ~ loop.index -}}{%- endif -%}" + said
    )
    rewriting = ChatRenderer(tokenizer)
    engine = TransformersEngine(
        lambda _: load_base(config.policy, base), PolicyRef(base), rewriting.end_of_turn_id, Sampling(), slots=8
    )
    played = run_episodes(engine, rewriting, RolloutConfig(), RolloutPlan(tasks[:6], samples=4, seed=3))
    assert sum(bool(one.forks) for one in played) > 5
    folder = tmp_path_factory.mktemp("forked")
    write_records(folder / "trajectories.parquet", played)
    return folder


@pytest.fixture(scope="module")
def program(branched, tmp_path_factory):
    folder = tmp_path_factory.mktemp("branched")
    write_records(folder / "trajectories.parquet", [branched])
    return folder


class TestAtif:
    def test_a_runs_episodes_are_valid(self, run, tmp_path):
        said = checked("harbor", export(run, "atif", tmp_path / "out"))
        assert said["errors"] == {}
        assert said["checked"] > 500

    def test_so_are_rewritten_and_branched_ones(self, forked, program, tmp_path):
        said = checked("harbor", export(forked, "atif", tmp_path / "forked"))
        assert (said["errors"], said["checked"]) == ({}, 24)
        said = checked("harbor", export(program, "atif", tmp_path / "branched"))
        assert (said["errors"], said["checked"]) == ({}, 2)

    def test_the_validator_refuses_what_is_wrong(self, program, tmp_path):
        out = export(program, "atif", tmp_path / "out")
        path = out / "episodes" / "t1.json"
        document = json.loads(path.read_text())
        document["steps"][2]["observation"]["results"][0]["source_call_id"] = "nobody's"
        path.write_text(json.dumps({**document, "reward": 1.0}))
        assert len(checked("harbor", out)["errors"]["t1.json"]) == 1


class TestOpenEnv:
    def test_a_runs_episodes_are_valid_and_each_is_one_sequence(self, run, tmp_path):
        said = checked("openenv", export(run, "openenv", tmp_path / "out"))
        assert said["errors"] == {}
        assert said["checked"] > 500
        assert {(shape["n_roots"], shape["n_forks"]) for shape in said["shapes"].values()} == {(1, 0)}

    def test_so_are_rewritten_ones_which_are_sequences_of_one_turn(self, forked, tmp_path):
        said = checked("openenv", export(forked, "openenv", tmp_path / "out"))
        assert said["errors"] == {}
        assert said["checked"] == 24
        assert all(shape["n_roots"] == shape["n_turns"] for shape in said["shapes"].values())

    def test_branches_are_the_tree_of_their_own_graph(self, program, tmp_path):
        said = checked("openenv", export(program, "openenv", tmp_path / "out"))
        assert said["errors"] == {}
        assert said["shapes"]["t1.json"] == {"n_turns": 4, "n_roots": 2, "n_forks": 1}

    def test_the_validator_refuses_what_is_wrong(self, program, tmp_path):
        out = export(program, "openenv", tmp_path / "out")
        path = out / "episodes" / "t1.json"
        trace = json.loads(path.read_text())
        trace["turns"][0]["per_token_logps"][0] = 0.5
        path.write_text(json.dumps(trace))
        assert "positive_logprob" in checked("openenv", out)["errors"]["t1.json"][0]
