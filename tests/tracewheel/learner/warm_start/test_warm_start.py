"""The warm start on a few episodes of the tiny base: its data, whom it imitates, and that it is reproducible."""

import json
import random
from pathlib import Path

import pandas as pd
import pytest
import torch
import trl
from datasets import Dataset
from peft import get_peft_model
from safetensors.torch import load_file

from tracewheel.config import DeepSpeedConfig, WarmStartSections
from tracewheel.core.errors import DataError
from tracewheel.learner.warm_start import fine_tuning
from tracewheel.learner.warm_start.demonstrations import demonstration_examples
from tracewheel.learner.warm_start.fine_tuning import linear_schedule
from tracewheel.learner.warm_start.stage import warm_start
from tracewheel.policy.adapters import PolicyRef, check_adapter, peft_config, policy_of, write_adapter
from tracewheel.policy.loading import load_base, load_for_generation

EPISODES = "episodes.parquet"
IGNORED = -100  # TRL leaves these labels out of the loss


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
        return out, warm_start(WarmStartSections.of(changed), curated, out, demonstrations)

    return warm_start_with


def verified(curated):
    episodes = pd.read_parquet(curated / EPISODES)
    return episodes[(episodes["split"] == "train") & (episodes["success"] == 1.0)]


def logprobs_of(model, pairs):
    """The log-probability of each token in the masks, by plain forward passes."""
    found = []
    for ids, mask in pairs:
        ids, mask = torch.tensor(ids), torch.tensor(mask)
        with torch.no_grad():
            logprobs = torch.log_softmax(model(input_ids=ids[None]).logits[0, :-1], dim=-1)
        found.append(logprobs.gather(1, ids[1:, None])[:, 0][mask[1:].bool()])
    return torch.cat(found)


def share_of_replay(config, share):
    return config.warm_start.replay.model_copy(update={"share": share})


def test_the_loss_is_that_of_the_masked_tokens(run, curated, renderer, config):
    """Of demonstrations and replay text, against plain forward passes of the base: the first step's loss is the base's."""
    _, metrics = run(replay=share_of_replay(config, 0.5), batch_size=1000, epochs=1)
    examples = demonstration_examples(verified(curated), renderer, ["multi_turn"])
    replay = pd.read_parquet(config.warm_start.replay.path)
    rng = random.Random(f"replay-{config.seed}")
    rows = replay.iloc[rng.sample(range(len(replay)), len(examples))]
    pairs = [(example["input_ids"], example["assistant_masks"]) for example in examples]
    pairs += list(zip(rows["input_ids"], rows["assistant_masks"], strict=True))
    expected = logprobs_of(load_for_generation(config.policy, PolicyRef(config.policy.base)), pairs)
    assert metrics["steps"] == 1 and metrics["tokens"] == len(expected) == sum(int(sum(mask)) for _, mask in pairs)
    assert metrics["final_loss"] == pytest.approx(-expected.mean().item(), rel=1e-4)


def test_the_adapter_is_trls(run, curated, renderer, config, base, tmp_path):
    """TRL's trainer on the same examples, from the same first weights, one step of all examples an epoch."""
    out, metrics = run(batch_size=1000, epochs=10, warmup_steps=1)
    rows = [
        {
            "input_ids": example["input_ids"],
            "labels": [i if m else IGNORED for i, m in zip(example["input_ids"], example["assistant_masks"], strict=True)],
        }
        for example in demonstration_examples(verified(curated), renderer, ["multi_turn"])
    ]
    torch.manual_seed(config.seed)
    trainer = trl.SFTTrainer(
        model=get_peft_model(load_base(config.policy, base), peft_config(config.warm_start.lora)),
        processing_class=renderer.tokenizer,
        train_dataset=Dataset.from_list(rows),
        args=trl.SFTConfig(
            output_dir=str(tmp_path / "trl"), num_train_epochs=10, per_device_train_batch_size=len(rows), warmup_steps=1,
            learning_rate=config.warm_start.learning_rate, lr_scheduler_type="linear", max_length=None, use_cpu=True,
            bf16=False, gradient_checkpointing=False, save_strategy="no", report_to=[], disable_tqdm=True,
        ),
    )  # fmt: skip
    result = trainer.train()
    write_adapter(trainer.model, tmp_path / "theirs", "default", base, version=0)
    assert metrics["steps"] == result.global_step == 10
    ours, theirs = (load_file(folder / "adapter_model.safetensors") for folder in (out / "adapter", tmp_path / "theirs"))
    assert ours.keys() == theirs.keys()
    moved = max(tensor.abs().max().item() for name, tensor in ours.items() if "lora_B" in name)
    assert moved > 1e-3
    assert max((tensor - theirs[name]).abs().max().item() for name, tensor in ours.items()) < 0.02 * moved


def test_memory_follows_micro_batches_and_not_the_batch_size(run, assert_same_adapters):
    """A step of all examples, one example a pass or all at once, in each layout: the same weights up to rounding."""
    settings = {"batch_size": 1000, "epochs": 2, "warmup_steps": 0}
    whole, _ = run(**settings, micro_batch_tokens=1_000_000)
    for changes in ({"micro_batch_tokens": 1}, {"layout": "padded"}, {"layout": "packed", "gradient_checkpointing": True}):
        cut, _ = run(**settings | {"micro_batch_tokens": 300} | changes)
        assert_same_adapters(cut, whole)


@pytest.fixture
def assert_same_adapters():
    def check(one, other):
        one, other = (load_file(out / "adapter" / "adapter_model.safetensors") for out in (one, other))
        assert one.keys() == other.keys()
        for name, tensor in one.items():
            assert torch.allclose(tensor, other[name], atol=1e-4), name

    return check


@pytest.mark.slow
def test_several_processes_train_the_same_adapter(run, assert_same_adapters):
    settings = {"batch_size": 1000, "epochs": 2, "warmup_steps": 0}
    alone, metrics = run(**settings)
    shared, others = run(**settings, backend=DeepSpeedConfig(processes=2, stage=2))
    assert_same_adapters(shared, alone)
    assert others["final_loss"] == pytest.approx(metrics["final_loss"], rel=1e-4)


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

    pairs = [(example["input_ids"], example["assistant_masks"]) for example in examples]

    def loss(policy):
        return -logprobs_of(load_for_generation(config.policy, policy), pairs).mean().item()

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


def test_a_short_warm_start_leaves_its_warm_up(run, monkeypatch):
    """30 examples at the defaults are 4 steps: with ten of warm-up the rate was 0.15 of the nominal one on average."""
    shares = []

    def recorded(*given):
        shares.append(linear_schedule(*given))
        return shares[-1]

    monkeypatch.setattr(fine_tuning, "linear_schedule", recorded)
    for warmup_steps, expected in ((None, [1.0, 0.75, 0.5, 0.25]), (10, [0.0, 0.1, 0.2, 0.3])):
        shares.clear()
        run(batch_size=1000, epochs=4, warmup_steps=warmup_steps)
        assert shares == pytest.approx(expected)
    shares.clear()
    run(batch_size=1000, epochs=30)
    assert shares[:4] == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0]) and shares[-1] == pytest.approx(1 / 27)


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


def test_without_demonstrations_the_policy_is_the_base(run, curated, renderer, config):
    out, metrics = run("none")
    assert metrics["steps"] == 0
    pairs = [([5, 6, 7, 8], [0, 1, 1, 1])]
    base, adapted = config.policy.base, PolicyRef(config.policy.base, str(out / "adapter"))
    found = [logprobs_of(load_for_generation(config.policy, policy), pairs) for policy in (adapted, PolicyRef(base))]
    assert torch.equal(*found)
