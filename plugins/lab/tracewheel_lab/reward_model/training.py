"""Trains reward models with TRL's `RewardTrainer` on stored token ids: nothing is decoded and tokenised again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tracewheel import DataError, base_folder, load_tokenizer, write_json
from tracewheel_lab.reward_model.calibration import figures_of, fit_platt
from tracewheel_lab.reward_model.examples import Example, Pair, pairs_of, split_by_task
from tracewheel_lab.reward_model.scorer import ABOUT_FILE, MEMBER, RewardModel

FEWEST_PAIRS = 8


class RewardModelSettings(BaseModel):
    """How a reward model is trained: `members` of an ensemble, each with its own seed and order of the pairs.

    `deviations` is k in the score, the members' mean minus k times their standard deviation (Coste et al. 2023,
    arXiv:2310.02743).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    members: int = Field(default=3, ge=1)
    epochs: int = Field(default=2, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0.0)
    batch_size: int = Field(default=16, ge=1)
    pairs_per_task: int = Field(default=64, ge=1)
    weights: Literal["full", "lora"] = "full"
    rank: int = Field(default=16, ge=1)
    deviations: float = Field(default=1.0, ge=0.0)
    seed: int = Field(default=0, ge=0)


def train_reward_model(base: str, examples: list[Example], settings: RewardModelSettings, out: Path) -> dict[str, Any]:
    """Train an ensemble, calibrate it on tasks it was not trained on, and test it on tasks that neither saw.

    Args:
        base: The policy's base: a Hugging Face id or a folder.
        examples: Verified trajectories.
        settings: How.
        out: A folder for `member-N/` and `reward_model.json`.

    Returns:
        What `reward_model.json` holds: the settings, counts, and the figures of `calibrate` and `test`.

    Raises:
        DataError: too few tasks have both a success and a failure.
    """
    parts = split_by_task(examples, settings.seed)
    pairs = pairs_of(parts["train"], settings.pairs_per_task, settings.seed)
    if len(pairs) < FEWEST_PAIRS:
        raise DataError(
            f"{len(pairs)} pairs of a success and a failure at the same task, at least {FEWEST_PAIRS} are needed: give a run "
            "with more episodes of each task (rollout.group_size)"
        )
    for number in range(settings.members):
        _train_member(base, pairs, settings, settings.seed + number, out / f"{MEMBER}{number}")
    about: dict[str, Any] = {"settings": settings.model_dump(mode="json"), "pairs": len(pairs), "slope": 1.0, "shift": 0.0}
    write_json(out / ABOUT_FILE, about)
    model = RewardModel(out)
    scores = {name: model.scores([e.token_ids for e in found]) for name, found in parts.items() if found}
    held = parts["calibrate"]
    platt = fit_platt(scores.get("calibrate", []), [example.success for example in held])
    for name in ("calibrate", "test"):
        found = parts[name]
        about[name] = figures_of([e.task for e in found], scores.get(name, []), [e.success for e in found], platt)
    about |= {"slope": platt.slope, "shift": platt.shift}
    write_json(out / ABOUT_FILE, about)
    return about


def _train_member(base: str, pairs: list[Pair], settings: RewardModelSettings, seed: int, out: Path) -> None:
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForSequenceClassification, set_seed
    from trl import RewardConfig, RewardTrainer

    set_seed(seed)
    tokenizer = load_tokenizer(base_folder(base))
    model = AutoModelForSequenceClassification.from_pretrained(base_folder(base), num_labels=1, dtype="float32")
    rows = Dataset.from_dict({"chosen_ids": [list(p.chosen) for p in pairs], "rejected_ids": [list(p.rejected) for p in pairs]})
    lora = LoraConfig(r=settings.rank, lora_alpha=2 * settings.rank, target_modules="all-linear", task_type="SEQ_CLS")
    arguments = RewardConfig(
        output_dir=str(out),
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        per_device_train_batch_size=settings.batch_size,
        max_length=None,
        gradient_checkpointing=False,
        bf16=False,
        seed=seed,
        data_seed=seed,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = RewardTrainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=lora if settings.weights == "lora" else None,
    )
    trainer.train()
    trained = trainer.accelerator.unwrap_model(trainer.model)
    whole = trained.merge_and_unload() if settings.weights == "lora" else trained
    whole.save_pretrained(out)
