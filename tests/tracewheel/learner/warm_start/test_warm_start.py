"""The warm start on a few episodes of the tiny base: its data, whom it imitates, and that it is reproducible."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
import trl
from safetensors.torch import load_file

from tracewheel.core.errors import DataError
from tracewheel.learner.warm_start.demonstrations import demonstration_examples
from tracewheel.learner.warm_start.stage import IGNORED, warm_start
from tracewheel.policy.adapters import PolicyRef, check_adapter, policy_of
from tracewheel.policy.loading import load_for_generation

EPISODES = "episodes.parquet"


@pytest.fixture
def run(config, curated, tmp_path):
    """Run the stage into a fresh folder with some of its settings changed; the folder and the metrics."""
    counter = iter(range(99))

    def warm_start_with(demonstrations="verified", *, curated=curated, seed=0, **changes):
        changed = config.model_copy(
            update={"seed": seed, "warm_start": config.warm_start.model_copy(update=changes)},
        )
        out = tmp_path / f"warm-start-{next(counter)}"
        out.mkdir()
        return out, warm_start(changed, curated, out, demonstrations)

    return warm_start_with


def verified(curated):
    episodes = pd.read_parquet(curated / EPISODES)
    return episodes[(episodes["split"] == "train") & (episodes["success"] == 1.0)]


def share_of_replay(config, share):
    return config.warm_start.replay.model_copy(update={"share": share})


def test_labels_are_ignored_outside_assistant_tokens(run, curated, renderer, config, monkeypatch):
    """Checked in the batches that reach the loss, for demonstrations and replay."""
    seen = []

    class Recording(trl.SFTTrainer):
        def compute_loss(self, model, inputs, *args, **kwargs):
            seen.extend(zip(*(inputs[key].tolist() for key in ("input_ids", "labels", "attention_mask")), strict=True))
            return super().compute_loss(model, inputs, *args, **kwargs)

    monkeypatch.setattr(trl, "SFTTrainer", Recording)
    run(replay=share_of_replay(config, 0.5))
    examples = demonstration_examples(verified(curated), renderer, ["multi_turn"])
    replay = pd.read_parquet(config.warm_start.replay.path)
    masks = {tuple(row.input_ids): list(row.assistant_masks) for row in replay.itertuples()}
    masks |= {tuple(example["input_ids"]): example["assistant_masks"] for example in examples}
    assert len(seen) == config.warm_start.epochs * 2 * len(examples)
    for ids, labels, attention in seen:
        length = sum(attention)
        mask = masks[tuple(ids[:length])]
        assert labels[:length] == [token if counts else IGNORED for token, counts in zip(ids[:length], mask, strict=True)]
        assert set(labels[length:]) <= {IGNORED}
        assert 0 < sum(mask) < length


def test_only_verified_training_episodes_are_imitated(run, curated, tasks, tmp_path, files_of):
    """The same adapter as from a folder that holds nothing else: no failed, unscored or held-out episode counts."""
    out, metrics = run("verified")
    assert metrics["demonstrations"] == metrics["examples"] == len(tasks)
    alone = tmp_path / "alone"
    alone.mkdir()
    verified(curated).to_parquet(alone / EPISODES)
    assert files_of(run("all", curated=alone)[0]) == files_of(out)
    everything, metrics = run("all")
    assert metrics["demonstrations"] == 3 * len(tasks), "all episodes of the training split, and of no other"
    assert files_of(everything) != files_of(out)


def test_the_same_seed_gives_the_same_bytes(run, files_of):
    (one, metrics), (two, _) = run(), run()
    assert files_of(one) == files_of(two)
    assert set(files_of(one)) == {
        "adapter/adapter.json", "adapter/adapter_config.json", "adapter/adapter_model.safetensors", "adapter/probe.json",
        "metrics.json",
    }  # fmt: skip
    assert json.loads((one / "metrics.json").read_text()) == metrics
    other, _ = run(seed=1)
    weights = "adapter/adapter_model.safetensors"
    assert files_of(other)[weights] != files_of(one)[weights]


def test_training_lowers_the_loss(run, config, base, curated, renderer):
    """On the episodes that the policy imitates, measured by plain forward passes."""
    out, _ = run(epochs=8, batch_size=4)
    examples = demonstration_examples(verified(curated), renderer, ["multi_turn"])

    def loss(policy):
        model = load_for_generation(config.policy, policy)
        losses = []
        for example in examples:
            ids, mask = torch.tensor(example["input_ids"]), torch.tensor(example["assistant_masks"])
            with torch.no_grad():
                logprobs = torch.log_softmax(model(input_ids=ids[None]).logits[0, :-1], dim=-1)
            losses.append(-logprobs.gather(1, ids[1:, None])[:, 0][mask[1:].bool()])
        return torch.cat(losses).mean().item()

    assert loss(PolicyRef(base, str(out / "adapter"))) < 0.8 * loss(PolicyRef(base))


def test_the_adapter_belongs_to_its_base(run, base):
    out, _ = run(epochs=1)
    assert check_adapter(out / "adapter", base) == 0


def test_full_weights_can_be_trained(run, base, config, files_of):
    """Every weight moves, in the format of a whole model; the same seed gives the same bytes."""
    (out, _), (again, _) = (run(weights="full", epochs=1, warmup_steps=0) for _ in range(2))
    assert files_of(out) == files_of(again)
    assert not (out / "adapter").exists()
    policy = policy_of(out, base)
    assert policy == PolicyRef(str(out / "model"), None, 0)
    before = load_for_generation(config.policy, PolicyRef(base)).state_dict()
    after = load_for_generation(config.policy, policy).state_dict()
    assert before.keys() == after.keys()
    still = [name for name in before if torch.equal(before[name], after[name])]
    assert not still
    assert (out / "model" / "config.json").read_text() == Path(base, "config.json").read_text()


def test_a_long_learning_rate_warm_up_learns_less(run, base, config):
    """With far more steps of warm-up than of training the rate only begins to rise."""

    def moved(**changes):
        out, _ = run(epochs=3, **changes)
        weights = load_file(out / "adapter" / "adapter_model.safetensors")
        return sum(tensor.abs().sum().item() for name, tensor in weights.items() if "lora_B" in name)

    assert 0.0 < moved(warmup_steps=100) < 0.2 * moved(warmup_steps=0)


def test_classes_and_replay_text_add_examples(run, config, tasks):
    _, metrics = run(epochs=1, classes=("multi_turn", "formatted", "negative"), replay=share_of_replay(config, 0.5))
    assert metrics["demonstrations"] == 3 * len(tasks)
    assert metrics["examples"] == 6 * len(tasks)


def test_the_control_trains_on_replay_text_alone(run, config, tasks):
    _, metrics = run("replay", epochs=1, replay=share_of_replay(config, 0.5))
    assert metrics["examples"] == 3 * len(tasks)


def test_no_examples_are_a_data_error(run, curated, config, tmp_path):
    episodes = pd.read_parquet(curated / EPISODES)
    empty = tmp_path / "empty"
    empty.mkdir()
    episodes[episodes["success"] != 1.0].to_parquet(empty / EPISODES)
    with pytest.raises(DataError, match="no verified episode in the training split"):
        run("verified", curated=empty)
    with pytest.raises(DataError, match="no replay text to learn from"):
        run("replay")
    wordless = episodes.assign(messages=json.dumps([{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]))
    wordless.to_parquet(empty / EPISODES)
    with pytest.raises(DataError, match="no example of negative"):
        run("all", curated=empty, classes=("negative",))
    with pytest.raises(DataError, match=r"episodes\.parquet: no such file"):
        run("all", curated=tmp_path / "absent")
