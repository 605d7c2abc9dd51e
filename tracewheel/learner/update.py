"""The update stage: trajectories and scores in, the next policy out."""

from __future__ import annotations

from tracewheel.config import DpoConfig, UpdateSections
from tracewheel.core.files import write_json
from tracewheel.core.kind_table import import_class
from tracewheel.learner.backends import processes
from tracewheel.learner.update_files import UpdateFiles

# What learns, by the learner's family.
PREFERENCES = "tracewheel.learner.dpo.learner:learn_dpo"
POLICY_GRADIENT = "tracewheel.learner.kept_learner:learn"


def update(config: UpdateSections, files: UpdateFiles, *, iteration: int) -> dict[str, float]:
    """Update the policy once on an iteration's trajectories.

    Args:
        config: The profile.
        files: What the update reads, and where it writes.
        iteration: Number of this update; it fixes the random choices and the new policy version.

    Raises:
        AdapterMismatchError: an adapter belongs to another base.
        DataError: scores and trajectories do not belong together, or the state is of another algorithm.
        SamplerMismatchError: sampler and trainer disagree, and `learner.mismatch` says to stop. Nothing is written.
    """
    if config.learner.backend.kind == "deepspeed" and not processes.started():
        from tracewheel.learner.backends.launch import update_by_processes

        return update_by_processes(config, files, iteration=iteration)
    import torch

    from tracewheel.learner.auto import CHOICE_FILE, chosen
    from tracewheel.learner.fidelity import token_figures, with_fidelity
    from tracewheel.learner.policy_versions import staleness_figures
    from tracewheel.learner.scored_trajectories import describe, read_scored_trajectories, without_failed
    from tracewheel.policy.adapters import policy_of

    torch.set_num_threads(config.threads)
    trajectories = read_scored_trajectories(files.trajectories, files.scores)
    version = policy_of(files.state, config.policy.base).version
    metrics = describe(trajectories)
    if config.certifies:
        metrics |= token_figures(trajectories)
    trajectories = without_failed(trajectories)
    metrics |= staleness_figures(trajectories, version, iteration)
    learner, shares = chosen(config.learner, files.state, trajectories, iteration)
    config = config.model_copy(update={"learner": learner})
    learn = import_class(PREFERENCES if isinstance(config.learner, DpoConfig) else POLICY_GRADIENT, "learner")
    metrics |= learn(config, trajectories, files, iteration)
    if config.certifies:
        metrics = with_fidelity(metrics)
    metrics |= shares
    if processes.is_first():
        if shares:
            write_json(files.out / CHOICE_FILE, shares)
        write_json(files.out / "metrics.json", metrics)
    return metrics
