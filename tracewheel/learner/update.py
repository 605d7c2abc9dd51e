"""The update stage: trajectories and scores in, the next policy out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tracewheel.config import DpoConfig, UpdateSections
from tracewheel.core.files import write_json
from tracewheel.learner import processes

Paths = Path | Sequence[Path]


def update(
    config: UpdateSections, trajectories: Paths, scores: Paths, state: Path, reference: Path, out: Path, *, iteration: int
) -> dict[str, float]:
    """Update the policy once on an iteration's trajectories.

    Args:
        trajectories, scores: Parquet files of the rollout and score stages, one of each or several.
        state: The previous state: a folder with the policy (`adapter/` or `model/`) and, after an
            update, all else that the algorithm remembers.
        reference: The policy that KL is measured to: its folder, or the state that holds it.
        out: Gets the next state and `metrics.json`.
        iteration: Number of this update; fixes its random choices and the new policy version.

    Raises:
        AdapterMismatchError: an adapter belongs to another base.
        DataError: scores and trajectories do not belong together, or the state is of another algorithm.
        SamplerMismatchError: sampler and trainer disagree, and `learner.mismatch` says to stop. Nothing is written.
    """
    if config.learner.backend.kind == "deepspeed" and not processes.started():
        from tracewheel.learner.launch import update_by_processes

        return update_by_processes(config, _listed(trajectories), _listed(scores), state, reference, out, iteration=iteration)
    import torch

    from tracewheel.learner.samples import describe, read_samples
    from tracewheel.learner.versions import staleness_figures
    from tracewheel.policy.adapters import policy_of

    torch.set_num_threads(config.threads)
    samples = read_samples(_listed(trajectories), _listed(scores))
    # Rollouts beside the update call the start 0, whatever number an earlier run gave it.
    version = min(policy_of(state, config.policy.base).version, iteration - 1)
    metrics = describe(samples) | staleness_figures(samples, version, iteration)
    if isinstance(config.learner, DpoConfig):
        from tracewheel.learner.dpo.learner import learn_dpo

        metrics |= learn_dpo(config, samples, state, reference, out, iteration)
    else:
        from tracewheel.learner.learner import Learner

        learner = Learner(config, state, reference)
        metrics |= learner.learn(samples, iteration)
        learner.save(out, version=iteration)
    if processes.is_first():
        write_json(out / "metrics.json", metrics)
    return metrics


def _listed(paths: Paths) -> list[Path]:
    return [paths] if isinstance(paths, Path) else list(paths)
