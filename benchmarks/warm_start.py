"""The warm start against TRL's `SFTTrainer`: CPU seconds and peak memory by batch size, on the demo's demonstrations.

    tracewheel curate configs/tiny.yaml --out CURATED
    python benchmarks/warm_start.py CURATED

One epoch of the logged episodes from the same base, each side in a process of its own. TRL gets the same token ids and
labels, and one micro-batch a step. Memory is that of the process at its peak, less that before the training.
Prints JSON and a table; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measuring import Meter, emit, environment, machine, table

IGNORED = -100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curated", type=Path)
    parser.add_argument("--profile", default="configs/tiny.yaml")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", choices=("ours", "trl"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(one(arguments.side, arguments.profile, arguments.curated, arguments.batch_sizes[0])))
        return
    rows = [measured(arguments, side, size) for size in arguments.batch_sizes for side in ("trl", "ours")]
    head = ["side", "batch size", "CPU s", "peak MiB", "loss"]
    lines = [[row["side"], row["batch_size"], row["cpu_s"], row["peak_mib"], row["loss"]] for row in rows]
    emit({"machine": machine(1), "profile": arguments.profile, "rows": rows}, table(head, lines), arguments.json)


def measured(arguments: argparse.Namespace, side: str, size: int) -> dict[str, Any]:
    """One side in its own process."""
    command = [sys.executable, __file__, str(arguments.curated), "--profile", arguments.profile, "--batch-sizes", str(size)]
    done = subprocess.run([*command, "--side", side], env=environment(1), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} at {size} ended with {done.returncode}\n{done.stderr[-3000:]}")
    return {"side": side, "batch_size": size, **json.loads(done.stdout.splitlines()[-1])}


def one(side: str, profile: str, curated: Path, size: int) -> dict[str, float]:
    """CPU seconds, peak memory and mean loss of one epoch."""
    from tracewheel.config import WarmStartSections, load_config
    from tracewheel.learner.warm_start.demonstrations import demonstration_examples
    from tracewheel.learner.warm_start.fine_tuning import fine_tune
    from tracewheel.learner.warm_start.selection import episodes_to_imitate
    from tracewheel.policy.loading import load_renderer

    overrides = ["threads=1", "warm_start.epochs=1", f"warm_start.batch_size={size}"]
    config = WarmStartSections.of(load_config(profile, overrides))
    renderer = load_renderer(config.policy.base, config.policy.tool_format, config.policy.chat_template)
    episodes = episodes_to_imitate(config.warm_start, curated, "all")
    examples = demonstration_examples(episodes, renderer, config.warm_start.classes)
    before = peak_mib()
    with tempfile.TemporaryDirectory() as out, Meter() as meter:
        loss = fine_tune(config, examples, Path(out))["final_loss"] if side == "ours" else by_trl(config, examples, out)
    return {"cpu_s": meter.cpu_s, "peak_mib": peak_mib() - before, "loss": loss}


def by_trl(config: Any, examples: list[dict[str, list[int]]], out: str) -> float:
    """The same epoch by `SFTTrainer`."""
    from datasets import Dataset
    from peft import get_peft_model
    from trl import SFTConfig, SFTTrainer

    from tracewheel.policy.adapters import peft_config
    from tracewheel.policy.loading import load_base, load_renderer

    rows = [
        {
            "input_ids": example["input_ids"],
            "labels": [i if m else IGNORED for i, m in zip(example["input_ids"], example["assistant_masks"], strict=True)],
        }
        for example in examples
    ]
    settings = config.warm_start
    trainer = SFTTrainer(
        model=get_peft_model(load_base(config.policy, config.policy.base), peft_config(settings.lora)),
        processing_class=load_renderer(config.policy.base, config.policy.tool_format, config.policy.chat_template).tokenizer,
        train_dataset=Dataset.from_list(rows),
        args=SFTConfig(
            output_dir=out,
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="linear",
            warmup_steps=settings.warmup_steps,
            max_length=None,
            seed=config.seed,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            train_sampling_strategy="group_by_length",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
    )
    return float(trainer.train().training_loss)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
