"""Direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290) on an iteration's own rollouts.

A pair is a success and a failure on the same task; TRL computes the loss. The state folder holds all that the next
update needs, and every choice follows from (seed, iteration), so a repeated update gives the same bytes.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import DpoConfig, UpdateSections
from tracewheel.learner.dpo.preferences import preference_pairs
from tracewheel.learner.dpo.steps import PairBatch, optimiser_steps
from tracewheel.learner.learning_rate import learning_rate
from tracewheel.learner.replay_text import ReplayText
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.adapters import check_adapter, policy_of, write_adapter
from tracewheel.policy.probe import write_probe

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from trl import DPOConfig as TrlConfig

    from tracewheel.learner.models import FullModels

# TRL's names for the adapters of policy and reference.
POLICY, REFERENCE = "default", "ref"
OPTIMIZER_FILE = "optimizer.pt"


def learn_dpo(config: UpdateSections, trajectories: pd.DataFrame, files: UpdateFiles, iteration: int) -> dict[str, float]:
    """Update the policy once on the preferences among an iteration's trajectories.

    Log-probabilities are at temperature 1, whatever the rollout's was: a preference is about the policy itself,
    not about how it explored.

    Args:
        config: The profile; `config.learner` is a `DpoConfig`.
        trajectories: Trajectory columns with the reward in `total`.
        files: State and reference to start from, and the folder that gets `adapter/` (or `model/`) and `optimizer.pt`.
        iteration: Number of this update; it fixes the random choices and the new policy version.

    Returns:
        `pairs`, `steps` and `zero_variance_share` (of groups without a pair). With steps also the means over
        them of the loss, TRL's figures (implicit rewards, accuracy, margin, entropy), `replay_loss` and
        `grad_norm`, and the mismatch of sampler and trainer.

    Raises:
        AdapterMismatchError: an adapter belongs to another base.
        SamplerMismatchError: sampler and trainer disagree, and the profile says to stop. Nothing is written.
    """
    import torch

    settings = config.learner
    assert isinstance(settings, DpoConfig)
    rng = random.Random(f"dpo-{config.seed}-{iteration}")
    pairs = preference_pairs(trajectories, per_group=settings.pairs_per_group, margin=settings.margin, rng=rng)
    groups = set(trajectories["group"].astype(str))
    figures = {
        "pairs": float(len(pairs)),
        "zero_variance_share": 1.0 - len({pair.group for pair in pairs}) / max(1, len(groups)),
    }
    policy = _TrlPolicy(config, files.state, files.reference)
    optimizer = _optimizer(policy.model, files.state, learning_rate(config, iteration))
    steps = optimiser_steps(settings, pairs, ReplayText(settings), rng)
    if steps:
        measured = steps if settings.mismatch.action == "stop" else steps[:1]
        version = policy_of(files.state, config.policy.base).version
        figures |= _mismatch(config, policy.model, version, _trajectories_of(measured, trajectories))
        figures |= _train(config, policy, steps, optimizer)
    else:
        figures["steps"] = 0.0
    for group in optimizer.param_groups:
        # The scheduler stores this iteration's rate here; it must not apply to the next iteration.
        group.pop("initial_lr", None)
    files.out.mkdir(parents=True, exist_ok=True)
    policy.save(files.out, iteration)
    torch.save(optimizer.state_dict(), files.out / OPTIMIZER_FILE)
    return figures


class _TrlPolicy:
    """The trained policy under TRL's adapter names, and its reference.

    With full weights `reference_model` is the reference; with an adapter it is None and the reference is a second
    adapter of `model`.
    """

    def __init__(self, config: UpdateSections, state: Path, reference: Path) -> None:
        self._base, self._reference = config.policy.base, reference
        self._full: FullModels | None = None
        self.reference_model: Any = None
        if config.learner.weights == "full":
            from tracewheel.learner.models import FullModels

            self._full = FullModels(config, state, reference)
            self.model, self.reference_model = self._full.model, self._full.reference_model
            return
        from tracewheel.policy.loading import load_policy_for_training

        check_adapter(reference, self._base)
        self.model = load_policy_for_training(config, state, adapter_name=POLICY)

    def load_reference(self) -> None:
        """Replace TRL's reference adapter, which starts as a copy of the policy's, by the real one."""
        if self._full is None:
            self.model.delete_adapter(REFERENCE)
            self.model.load_adapter(self._reference, adapter_name=REFERENCE)
            self.model.set_adapter(POLICY)

    def save(self, out: Path, version: int) -> None:
        if self._full is not None:
            self._full.save(out, self._base, version)
        else:
            write_adapter(self.model, out / "adapter", POLICY, self._base, version=version)
            write_probe(self.model, out / "adapter")


def _optimizer(model: Any, state: Path, rate: float) -> torch.optim.Optimizer:
    """AdamW over the trained parameters, with the state of the previous update and this iteration's rate."""
    import torch

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    if (state / OPTIMIZER_FILE).exists():
        optimizer.load_state_dict(torch.load(state / OPTIMIZER_FILE, weights_only=True))
    for group in optimizer.param_groups:
        group["lr"] = rate
    return optimizer


def _trajectories_of(steps: list[list[PairBatch]], trajectories: pd.DataFrame) -> pd.DataFrame:
    pairs = [pair for batches in steps for batch in batches for pair in batch.pairs]
    return trajectories.iloc[sorted({side.row for pair in pairs for side in (pair.chosen, pair.rejected)})]


def _mismatch(config: UpdateSections, model: Any, version: int, trajectories: pd.DataFrame) -> dict[str, float]:
    """The mismatch of sampler and trainer on these trajectories, and the action taken."""
    import torch

    from tracewheel.learner.batch import micro_batches
    from tracewheel.learner.kernels.token_logprobs import action_logprobs
    from tracewheel.learner.mismatch import act_on, resolved
    from tracewheel.learner.mismatch_statistics import MismatchStatistics
    from tracewheel.learner.per_token import pad_per_token
    from tracewheel.learner.policy_versions import current_tokens

    current = current_tokens(trajectories, version)
    found = MismatchStatistics()
    with torch.no_grad():
        for batch in micro_batches(trajectories, [0.0] * len(trajectories), config.learner.micro_batch_tokens):
            placed = batch.to(config.policy.device)
            found.observe_batch(action_logprobs(model, placed)[0], placed, pad_per_token(current, placed))
    return found.figures() | act_on(resolved(config), found.figures())


def _train(
    config: UpdateSections, policy: _TrlPolicy, steps: list[list[PairBatch]], optimizer: torch.optim.Optimizer
) -> dict[str, float]:
    import torch
    from datasets import disable_progress_bars

    from tracewheel.learner.dpo.trainer import PreferenceTrainer
    from tracewheel.policy.loading import load_renderer

    disable_progress_bars()
    settings = config.learner
    tokenizer = load_renderer(config.policy.base, config.policy.tool_format).tokenizer
    with tempfile.TemporaryDirectory() as scratch:
        trainer = PreferenceTrainer(
            policy.model,
            [batch for step in steps for batch in step],
            _trl_config(config, scratch, accumulation=len(steps[0])),
            padding=tokenizer.pad_token_id or 0,
            replay_weight=settings.replay_weight,
            layout=settings.layout,
            ref_model=policy.reference_model,
            processing_class=tokenizer,
            optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)),
        )
        policy.load_reference()
        trainer.compute_references()
        trainer.train()
    norms = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    figures = {name: value / len(steps) for name, value in sorted(trainer.figures.items())}
    figures["loss"] = figures["policy_loss"] + settings.replay_weight * figures["replay_loss"]
    return figures | {"grad_norm": sum(norms) / len(norms), "steps": float(trainer.state.global_step)}


def _trl_config(config: UpdateSections, scratch: str, accumulation: int) -> TrlConfig:
    from trl import DPOConfig as TrlConfig

    settings = config.learner
    assert isinstance(settings, DpoConfig)
    return TrlConfig(
        output_dir=scratch,
        beta=settings.beta,
        loss_type=[settings.loss],
        num_train_epochs=1,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=accumulation,
        max_grad_norm=settings.max_grad_norm,
        max_length=None,
        gradient_checkpointing=settings.gradient_checkpointing,
        use_cpu=config.policy.device == "cpu",
        bf16=False,
        seed=config.seed,
        remove_unused_columns=False,
        save_strategy="no",
        report_to=[],
        logging_steps=1,
        disable_tqdm=True,
    )
