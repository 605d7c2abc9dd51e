"""Direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290) on an iteration's own rollouts.

The pairs are success and failure of the same task; the loss is TRL's. What is needed to go on is in the
state folder, and every choice follows from (seed, iteration), so an update that is run again gives the
same bytes.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import DpoConfig, UpdateSections
from tracewheel.learner.dpo.preferences import Pair, preference_pairs
from tracewheel.learner.generic_text import GenericText
from tracewheel.learner.learning_rate import learning_rate
from tracewheel.policy.adapters import check_adapter, policy_of, write_adapter
from tracewheel.policy.probe import write_probe

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from trl import DPOConfig as TrlConfig

    from tracewheel.learner.dpo.trainer import Piece
    from tracewheel.learner.models import FullModels

# The names that TRL gives to the adapters of policy and reference.
POLICY, REFERENCE = "default", "ref"
OPTIMIZER_FILE = "optimizer.pt"


def learn_dpo(
    config: UpdateSections, rollouts: pd.DataFrame, state: Path, reference: Path, out: Path, iteration: int
) -> dict[str, float]:
    """Update the policy once on the preferences among an iteration's trajectories.

    Log-probabilities are those at temperature 1, whatever the rollout's was: a preference is about the
    policy as it is, not about how it was made to explore.

    Args:
        rollouts: Trajectory columns with the reward in `total`.
        state: The previous state: `adapter/` (or `model/`) and, after an update, `optimizer.pt`.
        reference: The adapter whose log-probabilities the preferences are measured against.
        out: Gets `adapter/` (or `model/`) and `optimizer.pt`.
        iteration: Number of this update; fixes its random choices and the new policy version.

    Returns:
        `pairs`, `steps` and `zero_variance_share` (of groups that gave no pair); with steps also the means
        over them of the loss, TRL's figures (implicit rewards, accuracy, margin, entropy), `replay_loss`
        and `grad_norm`, and how far the sampler's log-probabilities are from the trainer's.

    Raises:
        AdapterMismatchError: an adapter belongs to another base.
        SamplerMismatchError: sampler and trainer disagree, and the profile says to stop. Nothing is written.
    """
    import torch

    settings = config.learner
    assert isinstance(settings, DpoConfig)
    rng = random.Random(f"dpo-{config.seed}-{iteration}")
    pairs = preference_pairs(rollouts, per_group=settings.pairs_per_group, margin=settings.margin, rng=rng)
    groups = set(rollouts["group"].astype(str))
    figures = {
        "pairs": float(len(pairs)),
        "zero_variance_share": 1.0 - len({pair.group for pair in pairs}) / max(1, len(groups)),
    }
    policy = _Policy(config, state, reference)
    parameters = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
    rate = learning_rate(config, iteration)
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    if (state / OPTIMIZER_FILE).exists():
        optimizer.load_state_dict(torch.load(state / OPTIMIZER_FILE, weights_only=True))
    for group in optimizer.param_groups:
        group["lr"] = rate
    steps = _steps(settings, pairs, GenericText(settings), rng)
    if steps:
        figures |= _mismatch(config, policy, rollouts, steps if settings.mismatch.action == "stop" else steps[:1], state)
    figures |= _train(config, policy, steps, optimizer) if steps else {"steps": 0.0}
    for group in optimizer.param_groups:
        # A scheduler's memory of this iteration's rate, which would hold in the next one as well.
        group.pop("initial_lr", None)
    out.mkdir(parents=True, exist_ok=True)
    policy.save(out, iteration)
    torch.save(optimizer.state_dict(), out / OPTIMIZER_FILE)
    return figures


class _Policy:
    """The policy that is trained, under the names TRL knows, and where its reference is."""

    def __init__(self, config: UpdateSections, state: Path, reference: Path) -> None:
        self._base, self._reference = config.policy.base, reference
        self._full: FullModels | None = None
        self.beside: Any = None
        if config.learner.weights == "full":
            from tracewheel.learner.models import FullModels

            self._full = FullModels(config, state, reference)
            self.model, self.beside = self._full.model, self._full.beside
            return
        from tracewheel.policy.loading import load_policy_for_training

        check_adapter(reference, self._base)
        self.model = load_policy_for_training(config, state, adapter_name=POLICY)

    def load_reference(self) -> None:
        """Put the reference's weights where TRL, at its start, has put a copy of the policy's."""
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


def _mismatch(
    config: UpdateSections, policy: _Policy, rollouts: pd.DataFrame, steps: list[list[Piece]], state: Path
) -> dict[str, float]:
    """How far sampler and trainer are apart on the trajectories of some steps, and what is done about it."""
    import torch

    from tracewheel.learner.batch import micro_batches
    from tracewheel.learner.differences import Differences
    from tracewheel.learner.kernels.token_logprobs import action_logprobs
    from tracewheel.learner.mismatch import act_on
    from tracewheel.learner.per_token import spread
    from tracewheel.learner.versions import current_tokens

    used = {way.row for pieces in steps for piece in pieces for pair in piece.pairs for way in (pair.chosen, pair.rejected)}
    table = rollouts.iloc[sorted(used)]
    current = current_tokens(table, policy_of(state, config.policy.base).version)
    found = Differences()
    with torch.no_grad():
        for batch in micro_batches(table, [0.0] * len(table), config.learner.micro_batch_tokens):
            placed = batch.to(config.policy.device)
            found.see_batch(action_logprobs(policy.model, placed)[0], placed, spread(current, placed))
    return found.figures() | act_on(config.learner.mismatch, found.figures())


def _steps(settings: DpoConfig, pairs: list[Pair], texts: GenericText, rng: random.Random) -> list[list[Piece]]:
    """The optimiser steps, each of equally many pieces of at most `micro_batch_tokens` tokens (but for single pairs)."""
    if not pairs:
        return []
    from tracewheel.learner.dpo.trainer import Piece

    n_steps = min(settings.minibatches, len(pairs))
    in_a_step = -(-len(pairs) // n_steps)
    fitting = max(1, settings.micro_batch_tokens // (2 * max(map(_length, pairs))))
    n_pieces = -(-in_a_step // fitting)
    steps = []
    for _ in range(settings.epochs):
        order = list(range(len(pairs)))
        rng.shuffle(order)
        for number in range(n_steps):
            chosen = sorted((pairs[index] for index in order[number::n_steps]), key=_length)
            # Every step has as many pieces, so one with a pair less may get a piece that counts nothing.
            cuts = [len(chosen) * part // n_pieces for part in range(n_pieces + 1)]
            parts = [chosen[start:end] for start, end in itertools.pairwise(cuts)]
            drawn = texts.draw(rng)
            tokens = sum(int(batch.action_mask.sum()) for batch in drawn)
            steps.append(
                [
                    Piece(part or chosen[:1], len(part) / len(chosen), drawn[place::n_pieces], tokens)
                    for place, part in enumerate(parts)
                ]
            )
    return steps


def _length(pair: Pair) -> int:
    return len(pair.prompt_ids) + max(len(pair.chosen.token_ids), len(pair.rejected.token_ids))


def _train(
    config: UpdateSections, policy: _Policy, steps: list[list[Piece]], optimizer: torch.optim.Optimizer
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
            [piece for step in steps for piece in step],
            _trl_config(config, scratch, accumulation=len(steps[0])),
            padding=tokenizer.pad_token_id or 0,
            replay_weight=settings.replay_weight,
            ref_model=policy.beside,
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
