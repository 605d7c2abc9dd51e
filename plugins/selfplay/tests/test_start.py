"""What would fail after all rounds is found before the first, and before anything is deleted."""

from argparse import ArgumentParser

import pandas as pd
import pytest
import yaml

from tracewheel import ConfigError, DataError, load_config, make_environment
from tracewheel.core.out_folder import check_out_folder
from tracewheel_selfplay import rounds
from tracewheel_selfplay.commands import self_play, self_reward


@pytest.fixture
def called(tmp_path, base):
    """Calls a command on a curated folder and a state that lies in an earlier output."""
    curated, state = tmp_path / "curated", tmp_path / "out" / "rounds" / "001" / "update"
    curated.mkdir()
    state.mkdir(parents=True)
    tasks = make_environment("workspace").make_tasks(2, 0)
    pd.DataFrame([task.to_record() | {"split": "train"} for task in tasks]).to_parquet(curated / "tasks.parquet")
    pd.DataFrame({"trace_id": []}).to_parquet(curated / "episodes.parquet")
    profile = tmp_path / "p.yaml"
    profile.write_text(yaml.safe_dump({"name": "p", "policy": {"base": base}, "environment": {"kind": "workspace"}}))

    def run(module, *words):
        parser = ArgumentParser()
        module.COMMAND.options(parser)
        parser.add_argument("--debug", action="store_true")
        given = [profile, "--curated", curated, "--state", state, "--out", tmp_path / "out", *words]
        return module.COMMAND.run(parser.parse_args([str(word) for word in given]))

    yield run
    assert state.is_dir()


@pytest.mark.parametrize("module", [self_play, self_reward])
@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        ([], DataError, "is replaced, and .*update lies in it"),
        (["--set", "gate.false_accepts=audit"], ConfigError, "only a run audits its graders"),
    ],
)
def test_nothing_is_deleted(called, module, words, error, says):
    with pytest.raises(error, match=says):
        called(module, *words)


@pytest.mark.parametrize(
    ("module", "words", "error", "says"),
    [
        (self_play, ["--tokens", 0], DataError, "--tokens 0: a number from 1"),
        (self_reward, ["--labels", 0], DataError, "at least one task"),
        (self_reward, ["--set", "rollout.group_size=2"], ConfigError, "2 episodes have no majority"),
    ],
)
def test_numbers_that_make_no_sense(called, module, words, error, says):
    with pytest.raises(error, match=says):
        called(module, *words)


@pytest.mark.parametrize("module", [self_play, self_reward])
def test_what_a_kill_leaves_is_replaced_by_the_same_command(called, module, tmp_path, monkeypatch):
    def killed(*_, **more):
        (tmp_path / "again" / "rounds" / "001").mkdir(parents=True)
        (tmp_path / "again" / "rounds" / "001" / "trajectories.parquet").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("tracewheel_selfplay.self_play.SelfPlay.__init__", killed)
    monkeypatch.setattr("tracewheel_selfplay.self_reward.self_reward", killed)
    with pytest.raises(KeyboardInterrupt):
        called(module, *(["--at-random"] if module is self_play else []), "--out", tmp_path / "again")
    check_out_folder(tmp_path / "again", module.COMMAND.writes, module.COMMAND.name)


def test_the_gate_is_the_profiles(monkeypatch, tmp_path):
    asked = {}

    class Verdict:
        verdict, says, reasons = "promoted", "so", []

    monkeypatch.setattr(rounds, "policy_of", lambda *_: None)
    monkeypatch.setattr(rounds, "evaluate_split", lambda *_: {"greedy": {"rate": 0.5}, "sampled": {"rate": 0.5}})
    monkeypatch.setattr(rounds, "decide_gate", lambda *_, **more: asked.update(more) or Verdict())
    config = load_config("configs/tiny.yaml", ["gate.false_accepts=0.02"])
    rounds.judge(config, {"start": tmp_path / "a", "self-play": tmp_path / "b"}, tmp_path, tmp_path / "out")
    assert asked["false_accepts"] == 0.02 and asked["trained"]
