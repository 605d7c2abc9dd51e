"""One measured update, ours or TRL's, as the child process of benchmarks/learner.py."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from learner_workload import Workload, policy, read

LEARNING_RATE = 1e-4
CLIP = 0.2


class Meter:
    """CPU and wall time, and the peak of resident memory, from `start` to `stop`."""

    def start(self) -> None:
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        self.before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
        self.cpu, self.wall = time.process_time(), time.perf_counter()

    def stop(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.cpu, self.wall = time.process_time() - self.cpu, time.perf_counter() - self.wall
        self.peak = _status("VmHWM")

    def figures(self) -> dict[str, float]:
        return {"cpu_s": self.cpu, "wall_s": self.wall, "peak_mib": self.peak, "added_mib": self.peak - self.before}


def _status(key: str) -> float:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key + ":")]
    return int(line.split()[1]) / 1024


def ours(workload: Workload, table: pd.DataFrame, setting: dict[str, Any]) -> tuple[Meter, float, dict[str, torch.Tensor]]:
    """One step of the learner: advantages, micro-batches, loss, gradients, clipping, AdamW."""
    from tracewheel.config import ClipConfig, GroupAdvantageConfig
    from tracewheel.learner.advantages.trajectories import trajectory_advantages
    from tracewheel.learner.batch import micro_batches, step_totals
    from tracewheel.learner.kernels.language_model import checkpoint_activations
    from tracewheel.learner.kernels.token_logprobs import action_logprobs
    from tracewheel.learner.losses.policy import PolicyTokens, policy_loss

    model = policy(workload)
    if setting["checkpointing"]:
        checkpoint_activations(model)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0.0)
    meter, total = Meter(), 0.0
    meter.start()
    advantages = trajectory_advantages(GroupAdvantageConfig(), torch.tensor(table["reward"].tolist()), table["group"].tolist())
    batches = micro_batches(table, advantages.tolist(), setting["cap"], layout=setting["layout"])
    totals = step_totals(batches)
    for batch in batches:
        logprobs, _ = action_logprobs(model, batch, layout=setting["layout"])
        # TRL's first step uses no stored log-probabilities: the ratio is to the policy itself. Ours does the same.
        tokens = PolicyTokens(logprobs, logprobs.detach(), batch.advantages, batch.action_mask)
        result = policy_loss(ClipConfig(low=CLIP), tokens, totals, "token")
        result.loss.backward()
        total += result.loss.item()
    torch.nn.utils.clip_grad_norm_(parameters, 1e9)
    optimizer.step()
    meter.stop()
    return meter, total, _gradients(model)


def trl(workload: Workload, table: pd.DataFrame, setting: dict[str, Any]) -> tuple[Meter, float, dict[str, torch.Tensor]]:
    """One step of GRPOTrainer, its trajectories given by a rollout function; of several `steps` the last is measured.

    `device`: cpu unless given.
    """
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    meter = Meter()
    gradients: dict[str, torch.Tensor] = {}
    losses: list[float] = []

    class Watch(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            meter.start()

        def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
            gradients.update(_gradients(model))

        def on_step_end(self, *_: Any, **__: Any) -> None:
            meter.stop()

    class Watched(GRPOTrainer):
        def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
            loss = super()._compute_loss(model, inputs)
            losses.append(loss.item())
            return loss

    def rollout(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        chosen = _in_order(table, prompts)
        cut = chosen["prompt_length"]
        rest = [list(ids[at:]) for ids, at in zip(chosen["token_ids"], cut, strict=True)]
        return {
            "prompt_ids": [list(ids[:at]) for ids, at in zip(chosen["token_ids"], cut, strict=True)],
            "completion_ids": rest,
            "logprobs": [[0.0] * len(ids) for ids in rest],
            "env_mask": [list(mask[at:]) for mask, at in zip(chosen["action_mask"], cut, strict=True)],
        }

    words = Tokenizer(WordLevel({"<pad>": 0, "<end>": 1, "<unknown>": 2}, unk_token="<unknown>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>")
    with tempfile.TemporaryDirectory() as folder:
        trainer = Watched(
            model=policy(workload),
            reward_funcs=lambda prompts, **_: _in_order(table, prompts)["reward"].tolist(),
            processing_class=tokenizer,
            train_dataset=Dataset.from_dict({"prompt": sorted(set(table["group"]))}),
            rollout_func=rollout,
            callbacks=[Watch()],
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=setting["rows"],
                gradient_accumulation_steps=len(table) // setting["rows"],
                num_generations=workload.group,
                max_completion_length=workload.tokens,
                gradient_checkpointing=bool(setting["checkpointing"]),
                max_steps=setting.get("steps", 1),
                learning_rate=LEARNING_RATE,
                max_grad_norm=1e9,
                epsilon=CLIP,
                beta=0.0,
                loss_type="dapo",
                temperature=1.0,
                use_cpu=setting.get("device", "cpu") == "cpu",
                bf16=False,
                shuffle_dataset=False,
                report_to="none",
                save_strategy="no",
                logging_steps=100,
                disable_tqdm=True,
                seed=workload.seed,
            ),
        )
        trainer.train()
    return meter, sum(losses), gradients


def _in_order(table: pd.DataFrame, prompts: list[str]) -> pd.DataFrame:
    """The trajectories for prompts; each prompt is repeated for every sample of its group."""
    seen: dict[str, int] = {}
    positions = []
    for prompt in prompts:
        (members,) = (table.index[table["group"] == prompt],)
        positions.append(members[seen.get(prompt, 0)])
        seen[prompt] = seen.get(prompt, 0) + 1
    return table.loc[positions]


def _gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def main() -> None:
    folder, gradient, setting = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    workload, table = read(folder)
    table["logprobs"] = [[0.0] * len(ids) for ids in table["token_ids"]]
    meter, loss, gradients = {"ours": ours, "trl": trl}[setting["side"]](workload, table, setting)
    torch.save(gradients, folder / gradient)
    print(json.dumps(meter.figures() | {"loss": loss, "gradient": gradient}))


if __name__ == "__main__":
    main()
