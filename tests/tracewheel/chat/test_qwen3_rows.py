"""Qwen3's own tokenizer and template with small random weights: warm start, rollout, update; sampler and learner agree."""

import pytest
import torch

from tracewheel.chat.tokenizer import TOKENIZER_FILE
from tracewheel.config import RetrainConfig
from tracewheel.core.files import read_records
from tracewheel.core.forks import rows
from tracewheel.core.types import Score, Trajectory
from tracewheel.engines.making import make_engine
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import TOOLS
from tracewheel.environments.workspace.episode import play
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.learner.warm_start.fine_tuning import fine_tune
from tracewheel.policy.adapters import policy_of
from tracewheel.policy.loading import policy_renderer
from tracewheel.rollout.rollout import RolloutPlan, rollout
from tracewheel.scoring.score import write_scores


@pytest.fixture(scope="module")
def qwen3(real_tokenizer, tmp_path_factory):
    """A base of Qwen3's class with two layers."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("qwen3")
    tokenizer = real_tokenizer("qwen3")
    tokenizer.save_pretrained(folder)
    assert (folder / TOKENIZER_FILE).is_file()
    torch.manual_seed(1)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
    config = Qwen3Config(vocab_size=len(tokenizer), num_key_value_heads=2, tie_word_embeddings=True, **sizes)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def profile(base, options):
    whole = {"weights": "full", "gradient_checkpointing": False, "micro_batch_tokens": 4096}
    return RetrainConfig.model_validate(
        {
            "name": "qwen3",
            "threads": 1,
            "policy": {"base": base, "tool_format": "hermes", "template_options": options},
            "environment": {"kind": "workspace"},
            "warm_start": {
                **whole,
                "epochs": 80,
                "batch_size": 2,
                "learning_rate": 5e-3,
                "warmup_steps": 5,
                "layout": "packed",
            },
            "rollout": {"max_tokens": 1400, "max_turn_tokens": 60, "temperature": 1.0},
            "learner": {**whole, "layout": "shared_prefix", "learning_rate": 1e-4, "minibatches": 1, "replay_rows": 0},
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"enable_thinking": False}], ids=["thinking", "no thinking"])
def test_sampler_and_learner_agree_on_qwen3s_rows(qwen3, tasks, tmp_path, options):
    config = profile(qwen3, options)
    renderer = policy_renderer(config.policy)
    chosen = tasks[1:2]
    rendered = [renderer.conversation(play(task, solution(task)), TOOLS) for task in chosen]
    examples = [{"input_ids": one.ids, "assistant_masks": one.mask, "forks": one.forks} for one in rendered]
    assert all(one.forks for one in rendered)
    figures = fine_tune(config, examples * 2, tmp_path / "warm")
    assert figures["final_loss"] < 0.05
    policy = policy_of(tmp_path / "warm", qwen3)
    rollout(config, policy, RolloutPlan(chosen, samples=6, seed=2), tmp_path / "rollout")
    path = tmp_path / "rollout" / "trajectories.parquet"
    trajectories = read_records(path, Trajectory)
    forked = [trajectory for trajectory in trajectories if trajectory.forks]
    assert len(forked) >= 3 and max(len(rows(each.forks, len(each.token_ids))) for each in forked) >= 3
    rewards = [float(number % 2) for number in range(len(trajectories))]
    scores = tmp_path / "scores.parquet"
    scored = zip(trajectories, rewards, strict=True)
    write_scores(scores, [Score(t.id, t.task_id, t.group, "scored", reward) for t, reward in scored])
    files = UpdateFiles([path], [scores], tmp_path / "warm", tmp_path / "warm", tmp_path / "update")
    metrics = update(config, files, iteration=1)
    print({name: metrics[name] for name in metrics if "mismatch" in name}, len(forked), figures["final_loss"])
    assert metrics["sampler_mismatch_measured"] == 1.0 and metrics["sampler_mismatch_mean"] < 1e-5
    assert metrics["steps"] == 1.0
    again = policy_of(tmp_path / "update", qwen3)
    engine, _ = make_engine(config, again, greedy=False, slots=8)
    assert engine.policy_version == 1
