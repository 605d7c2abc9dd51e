"""The teacher of on-policy distillation: its log-probabilities, its checks, and what the policy learns."""

import json
import shutil

import pytest
import torch
from peft import PeftModel, get_peft_model

from tracewheel.config import LoraConfig, TeacherAdvantageConfig
from tracewheel.core.errors import AdapterMismatchError, ConfigError, DataError
from tracewheel.core.files import read_table
from tracewheel.learner.batch import micro_batches
from tracewheel.learner.distillation import teacher_logprobs
from tracewheel.policy.adapters import PolicyRef, peft_config, write_adapter
from tracewheel.policy.loading import load_base
from tracewheel.rollout.rollout import RolloutPlan, rollout


@pytest.fixture(scope="module")
def batch(trajectories):
    """Rows of unequal length, sampled at unequal temperatures."""
    table = read_table(trajectories).iloc[[0, 5]].assign(temperature=[1.0, 1.7])
    (batch,) = micro_batches(table, [0.0, 0.0], 100_000)
    return batch


def plain(model, batch):
    """By a forward pass over each row alone, with all its logits."""
    out = torch.zeros(batch.token_ids.shape)
    for row, length in enumerate(batch.attention_mask.sum(1).tolist()):
        ids = batch.token_ids[row : row + 1, :length]
        with torch.no_grad():
            logits = model(ids).logits[0, :-1] / batch.temperature[row]
        out[row, 1:length] = logits.log_softmax(-1).gather(-1, ids[0, 1:, None]).squeeze(-1)
    return out * batch.action_mask


def test_teacher_logprobs_of_an_adapter(config, base, adapter, batch):
    judged = teacher_logprobs(config, TeacherAdvantageConfig(adapter=str(adapter)))(batch)
    expected = plain(PeftModel.from_pretrained(load_base(config.policy, base), adapter).eval(), batch)
    torch.testing.assert_close(judged, expected, rtol=1e-4, atol=1e-5)
    assert not judged.requires_grad
    assert (judged[batch.action_mask == 0] == 0).all() and (judged[batch.action_mask == 1] < 0).any()


def test_teacher_logprobs_of_another_base(config, other_base, batch):
    judged = teacher_logprobs(config, TeacherAdvantageConfig(base=other_base))(batch)
    torch.testing.assert_close(judged, plain(load_base(config.policy, other_base), batch), rtol=1e-4, atol=1e-5)


def test_a_teacher_with_another_tokenizer_is_refused(config, base, tmp_path):
    stranger = tmp_path / "stranger"
    shutil.copytree(base, stranger)
    tokenizer = json.loads((stranger / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    one, other = sorted(vocabulary, key=vocabulary.get)[70:72]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    (stranger / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ConfigError, match="4 entries differ, the first is .* with id 70"):
        teacher_logprobs(config, TeacherAdvantageConfig(base=str(stranger)))


def test_missing_and_mismatched_teachers_are_refused(config, adapter, other_base, tmp_path):
    with pytest.raises(DataError, match="absent: no such folder"):
        teacher_logprobs(config, TeacherAdvantageConfig(adapter=str(tmp_path / "absent")))
    with pytest.raises(AdapterMismatchError):
        teacher_logprobs(config, TeacherAdvantageConfig(base=other_base, adapter=str(adapter)))


def divergence(config, base, adapter, batch):
    """The mean over action tokens of KL(policy || base), over the whole vocabulary."""
    adapted = PeftModel.from_pretrained(load_base(config.policy, base), adapter).eval()
    distributions = []
    for model in (adapted, load_base(config.policy, base)):
        with torch.no_grad():
            distributions.append(model(batch.token_ids, attention_mask=batch.attention_mask).logits[:, :-1].log_softmax(-1))
    policy, other = distributions
    return (policy.exp() * (policy - other)).sum(-1)[batch.action_mask[:, 1:] == 1].mean().item()


def test_distillation_reduces_the_divergence_from_the_teacher(run, config, base, tasks, tmp_path):
    """A perturbed policy learns from the base on its own samples. All rewards are equal."""
    torch.manual_seed(3)
    model = get_peft_model(load_base(config.policy, base), peft_config(LoraConfig(rank=4, alpha=8)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.4)
    write_adapter(model, tmp_path / "adapter", "default", base, version=0)
    settings = {"kind": "distillation", "advantage": {"base": base}, "learning_rate": 3e-3, "replay_rows": 0}
    state, apart = tmp_path, []
    for iteration in (1, 2):
        sampled = tmp_path / f"rollout-{iteration}"
        rollout(config, PolicyRef(base, str(state / "adapter")), RolloutPlan(tasks[:4], samples=4, seed=iteration), sampled)
        table = read_table(sampled / "trajectories.parquet")
        (batch,) = micro_batches(table, [0.0] * len(table), 1_000_000)
        before = divergence(config, base, state / "adapter", batch)
        state, metrics = run(
            settings,
            trajectories=sampled / "trajectories.parquet",
            rewards=[1.0] * len(table),
            state=state,
            iteration=iteration,
        )
        assert metrics["steps"] == 2
        apart.append((before, divergence(config, base, state / "adapter", batch)))
    assert all(after < 0.9 * before for before, after in apart)
