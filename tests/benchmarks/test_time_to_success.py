"""Time to success: both sides see the same tokens, evaluations fall where they should, a subset of tasks is even."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tracewheel.config import load_config
from tracewheel.environments import make_environment
from tracewheel.environments.base import TaskMaker
from tracewheel.environments.order_desk.tasks import FAMILIES, make_task
from tracewheel.policy.loading import load_base

ROOT = Path(__file__).parents[2]
# The second is the real model's template and environment with the tiny base, whose tokens are shorter.
SIDES = {
    "tiny": [],
    "smollm2": [
        "policy.base=data/base",
        "policy.chat_template=configs/templates/smollm2.pythonic.jinja",
        "rollout.max_tokens=640",
        "rubric.flawed_penalty=0",
    ],
}


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("profile", SIDES)
def test_an_episode_is_the_same_tokens_on_both_sides(profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from time_to_success_tokens import check_same_tokens
    from time_to_success_trl import TrlEnvironment, make_trainer

    config = load_config(f"configs/{profile}.yaml", SIDES[profile])
    environment = make_environment(config.environment.kind)
    assert isinstance(environment, TaskMaker)
    tasks = environment.make_tasks(24, seed=1)
    setting = {"episodes": 16, "steps": 1, "micro_batch": 8, "learning_rate": 1e-4}
    trainer = make_trainer(load_base(config.policy, config.policy.base), config, tasks, setting, str(tmp_path))
    assert (trainer.args.gradient_accumulation_steps, trainer.args.generation_batch_size) == (2, 16)
    check_same_tokens(trainer, config, tasks)
    answer = TrlEnvironment.call
    other = load_config(f"configs/{profile}.yaml", [*SIDES[profile], "rubric.flawed_penalty=0.5"])
    with pytest.raises(SystemExit, match="flawed_penalty=0"):
        make_trainer(None, other, tasks, setting, str(tmp_path))

    def call(self: TrlEnvironment, **given: Any) -> str:
        return answer(self, **given) + "."

    monkeypatch.setattr(TrlEnvironment, "call", call)
    with pytest.raises(SystemExit, match="the sides differ"):
        check_same_tokens(trainer, config, tasks)


def test_trl_takes_the_gradient_of_the_policys_own_tokens(tmp_path: Path) -> None:
    from time_to_success_trl import make_trainer
    from transformers import TrainerCallback

    config = load_config("configs/tiny.yaml")
    environment = make_environment(config.environment.kind)
    assert isinstance(environment, TaskMaker)
    seen: list[dict[str, Any]] = []
    gradients: list[torch.Tensor] = []

    class Stop(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, model: Any = None, **__: Any) -> None:
            gradients.append(gradient(model))

        def on_step_end(self, _: Any, __: Any, control: Any, **___: Any) -> None:
            control.should_training_stop = True

    model = load_base(config.policy, config.policy.base)
    setting = {"episodes": 32, "steps": 1, "micro_batch": 8, "learning_rate": 0.0}
    trainer = make_trainer(model, config, environment.make_tasks(8, seed=1), setting, str(tmp_path), [Stop()])
    loss = trainer.compute_loss

    def noted(model: Any, inputs: dict[str, Any], *given: Any, **more: Any) -> Any:
        seen.append(inputs)
        return loss(model, inputs, *given, **more)

    trainer.compute_loss = noted
    trainer.args.max_grad_norm = 1e6
    trainer.train()
    assert len(seen) == 4 and any(batch["advantages"].any() for batch in seen)
    count = sum(int((batch["completion_mask"] * batch["tool_mask"]).sum()) for batch in seen)
    observed = sum(int((batch["completion_mask"] * (1 - batch["tool_mask"])).sum()) for batch in seen)
    assert count and observed
    model.zero_grad()
    for batch in seen:
        for row in range(len(batch["prompt_ids"])):
            kept = batch["completion_mask"][row].bool()
            prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()]
            completion, own = batch["completion_ids"][row][kept], batch["tool_mask"][row][kept]
            logits = model(input_ids=torch.cat([prompt, completion])[None]).logits[0, len(prompt) - 1 : -1]
            logprobs = (logits / config.rollout.temperature).log_softmax(-1).gather(1, completion[:, None])[:, 0]
            (-(batch["advantages"][row] * logprobs * own).sum() / count).backward()
    torch.testing.assert_close(gradients[0], gradient(model), rtol=1e-3, atol=1e-5)


def gradient(model: Any) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def test_a_subset_has_the_shares_of_families_and_tiers() -> None:
    from time_to_success_sides import even_subset

    rng = random.Random(0)
    counts = {"item": 20, "status": 12, "shipped": 4, "open": 4}
    tasks = [make_task(family, 2 + number % 2, 0, rng) for family in FAMILIES for number in range(counts[family])]
    subset = even_subset(tasks, 20)
    assert Counter(task.family for task in subset) == {"item": 10, "status": 6, "shipped": 2, "open": 2}
    assert Counter(task.tier for task in subset) == {2: 10, 3: 10}
    assert len({task.id for task in subset}) == 20
    assert len(even_subset(tasks, 1000)) == 40


def test_iterations_of_fewer_episodes_are_not_evaluated_each() -> None:
    from time_to_success_sides import Race

    race: Any = SimpleNamespace(every=256)
    due = [Race.is_due(race, end - 96, end) for end in range(96, 96 * 9, 96)]
    assert due == [False, False, True, False, False, True, False, True]


@pytest.mark.parametrize(("profile", "count"), [("configs/tiny.yaml", 8), ("configs/smollm2.yaml", 5)])
def test_each_profile_has_settings_of_its_own(
    profile: str, count: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import time_to_success

    calls: list[dict[str, Any]] = []

    def child(script: str, seed: int, setting: dict[str, Any], _: object) -> str:
        calls.append(setting)
        return '{"reached": true, "cpu_s": 1.0, "wall_s": 1.0, "curve": [{"episodes": 0, "rate": 0.5}]}'

    monkeypatch.setattr(time_to_success, "_child", child)
    monkeypatch.setattr(sys, "argv", ["time_to_success.py", "--profile", profile, "--seeds", "0", "--sides", "trl", "--try"])
    time_to_success.main()
    assert len(calls) == 1 + count
    assert all(each["episodes"] % 256 in (0, 64, 128) for each in calls[1:])
    monkeypatch.setattr(sys, "argv", ["time_to_success.py", "--profile", profile, "--trl-setting", "none such"])
    with pytest.raises(SystemExit):
        time_to_success.main()
    assert "has the settings" in capsys.readouterr().err


def test_runs_of_earlier_calls_stand_beside_those_of_the_same_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import time_to_success

    limits: list[float] = []

    def child(script: str, seed: int, setting: dict[str, Any], _: object) -> str:
        limits.append(setting.get("limit", 0))
        seconds = {"ours": 10.0, "trl": 70.0}.get(script, 0)
        return f'{{"reached": true, "cpu_s": {seconds}, "wall_s": {seconds}, "curve": [{{"episodes": 256, "rate": 0.9}}]}}'

    def call(*more: str) -> None:
        monkeypatch.setattr(sys, "argv", ["time_to_success.py", "--seeds", "0", *more])
        time_to_success.main()

    monkeypatch.setattr(time_to_success, "_child", child)
    ours = tmp_path / "ours.json"
    call("--sides", "ours", "--json", str(ours))
    capsys.readouterr()
    call("--sides", "trl", "--beside", str(ours))
    assert limits == [0, 600, 0, 60]  # TRL's is six times what ours took
    assert ": 7.0 (CPU), 7.0 (wall)" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"ours\.json: has other split, threads than this call"):
        call("--sides", "trl", "--split", "validation", "--threads", "2", "--beside", str(ours))
