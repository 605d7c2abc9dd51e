"""The warm start: supervised fine-tuning of a LoRA adapter, or of the whole model, on logged episodes.

TRL's `SFTTrainer` gets token ids and labels from the renderer that rollouts use, so the policy imitates exactly the
tokens it would sample; the loss is on assistant tokens only.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tracewheel.config import LoraShape, WarmStartSections
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_table, write_json
from tracewheel.curation.curated_folder import EPISODES_FILE
from tracewheel.learner.warm_start.demonstrations import Example, demonstration_examples, with_replay
from tracewheel.learner.warm_start.selection import episodes_to_imitate
from tracewheel.policy.adapters import ADAPTER, MODEL, write_adapter, write_full_model

IGNORED = -100


def warm_start(config: WarmStartSections, curated: Path, out: Path, demonstrations: str) -> dict[str, float]:
    """Train the warm start on the training split's episodes; writes `adapter/` or `model/`, and `metrics.json`.

    Args:
        curated: The curation stage's output.
        demonstrations: "verified" for episodes that passed when re-executed, "all" for every logged one, "replay"
            for the replay text alone (a control that shows what imitation adds).

    Raises:
        DataError: there is nothing to learn from.
        LeakError: an extra demonstration belongs to a task outside the training split.
    """
    import torch

    from tracewheel.policy.loading import load_renderer

    torch.set_num_threads(config.threads)
    settings = config.warm_start
    episodes = episodes_to_imitate(settings, curated, demonstrations)
    renderer = load_renderer(config.policy.base, config.policy.tool_format)
    examples = demonstration_examples(episodes, renderer, settings.classes)
    n_demonstrations = len(examples)
    if settings.replay.path and settings.replay.share:
        examples = with_replay(examples, read_table(Path(settings.replay.path)), settings.replay.share, config.seed)
    if demonstrations == "replay":
        examples = examples[n_demonstrations:]
    if not examples:
        raise DataError(
            f"{curated / EPISODES_FILE}: no example of {', '.join(settings.classes)} and no replay text to learn from"
        )
    loss = _fine_tune(config, examples, out)
    metrics = {"demonstrations": n_demonstrations, "examples": len(examples), "final_loss": loss}
    write_json(out / "metrics.json", metrics)
    return metrics


def peft_config(lora: LoraShape) -> Any:
    """PEFT's form of the LoRA settings."""
    from peft import LoraConfig as PeftLoraConfig

    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    return PeftLoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, lora_dropout=0.0, task_type="CAUSAL_LM")


def _fine_tune(config: WarmStartSections, examples: list[Example], out: Path) -> float:
    from datasets import Dataset, disable_progress_bars
    from transformers import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    from tracewheel.policy.loading import load_base, load_renderer
    from tracewheel.policy.probe import write_probe

    disable_progress_bars()
    settings = config.warm_start
    whole = settings.weights == "full"
    rows = [
        {
            "input_ids": example["input_ids"],
            "labels": [i if m else IGNORED for i, m in zip(example["input_ids"], example["assistant_masks"], strict=True)],
        }
        for example in examples
    ]
    with tempfile.TemporaryDirectory() as scratch:
        trainer = SFTTrainer(
            # In full training the weights stay in float32 and only the passes use the lower precision.
            model=load_base(config.policy, config.policy.base, "float32" if whole else None),
            processing_class=load_renderer(config.policy.base, config.policy.tool_format).tokenizer,
            train_dataset=Dataset.from_list(rows),
            peft_config=None if whole else peft_config(settings.lora),
            args=SFTConfig(
                output_dir=scratch,
                num_train_epochs=settings.epochs,
                per_device_train_batch_size=settings.batch_size,
                learning_rate=settings.learning_rate,
                lr_scheduler_type="linear",
                warmup_steps=settings.warmup_steps,
                max_length=None,
                seed=config.seed,
                use_cpu=config.policy.device == "cpu",
                bf16=config.policy.dtype == "bfloat16",
                gradient_checkpointing=config.policy.device != "cpu",
                train_sampling_strategy="group_by_length",
                save_strategy="no",
                report_to=[],
                logging_steps=10,
                disable_tqdm=True,
            ),
        )
        trainer.remove_callback(PrinterCallback)
        result = trainer.train()
        if whole:
            write_full_model(trainer.model, out / MODEL, config.policy.base, version=0)
        else:
            write_adapter(trainer.model, out / ADAPTER, "default", config.policy.base, version=0)
        write_probe(trainer.model, out / (MODEL if whole else ADAPTER))
    return float(result.training_loss)
