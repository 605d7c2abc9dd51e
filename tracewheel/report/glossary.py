"""The figures of a run under the names that a tracking server shows: their group, their unit, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import get_args

from tracewheel.core.types import BranchReason

GROUPS = {
    "rollout": "what the policy did while it was trained, by iteration",
    "train": "what the update did with it, by iteration",
    "eval": "success on tasks that were not trained on",
    "cost": "what the run took",
    "gate": "the comparison that decides about promotion",
    "audit": "how often graders are wrong, on episodes whose worth is known",
    "splits": "the sets of tasks, as the curation drew them",
}
SHARE, NATS, COUNT = "share", "nats a token", "count"


@dataclass(frozen=True)
class Figure:
    """A figure of a group.

    Attributes:
        unit: `share` is from 0 to 1; "" where a figure has no unit.
    """

    group: str
    unit: str
    meaning: str


# Figures of an iteration, by the name in the metrics of an update.
OF_AN_ITERATION: Mapping[str, Figure] = {
    "reward": Figure("rollout", "", "mean reward of the scored episodes"),
    "success": Figure("rollout", SHARE, "scored episodes with the full reward of the task"),
    "generated_tokens": Figure("rollout", "tokens", "tokens that the policy generated, mean of an episode"),
    "trajectory_tokens": Figure("rollout", "tokens", "all tokens of an episode, mean"),
    "turns": Figure("rollout", "turns", "turns of the assistant, mean of an episode"),
    "truncated_share": Figure("rollout", SHARE, "episodes that met a limit of tokens or turns"),
    "unscored_share": Figure("rollout", SHARE, "episodes without a score"),
    "zero_variance_share": Figure("rollout", SHARE, "groups whose episodes all got one reward, and give no gradient"),
    "variants": Figure("rollout", COUNT, "harder or easier variants of tasks among those sampled"),
    "staleness_mean": Figure("rollout", "updates", "updates between the policy that sampled and the one that learns, mean"),
    "staleness_max": Figure("rollout", "updates", "the same, largest"),
    "stale_share": Figure("rollout", SHARE, "episodes left out because too old a policy sampled them"),
    "loss": Figure("train", "", "the loss without the replayed text"),
    "policy_loss": Figure("train", "", "the part of the loss that follows from the advantages"),
    "replay_loss": Figure("train", NATS, "cross-entropy of the generic text that every step replays"),
    "kl": Figure("train", NATS, "K3 estimate of the distance to the reference policy"),
    "kl_weight": Figure("train", "", "weight of that distance in the objective"),
    "behaviour_kl": Figure("train", NATS, "distance to the policy that sampled"),
    "entropy": Figure("train", NATS, "entropy of the policy on its own tokens"),
    "clip_share": Figure("train", SHARE, "tokens at the clip of the ratio"),
    "ratio_max": Figure("train", "", "largest ratio of new to sampling probability of a token"),
    "grad_norm": Figure("train", "", "norm of the gradient before clipping"),
    "learning_rate": Figure("train", "", "of this update"),
    "steps": Figure("train", COUNT, "steps of the optimiser"),
    "kept_rows": Figure("train", "rows", "rows that the update learnt from"),
    "masked_share": Figure("train", SHARE, "episodes without a finite reward, which teach nothing"),
    "not_finite_share": Figure("train", SHARE, "episodes left out because the sampler gave a token no finite log-probability"),
    "corrected_share": Figure("train", SHARE, "tokens of the policy with an importance weight other than 1"),
    "correction_cut_share": Figure("train", SHARE, "tokens of the policy whose importance weight was cut"),
    "sampler_mismatch_mean": Figure(
        "train", NATS, "difference of sampler and learner on the tokens that the updated policy sampled, mean"
    ),
    "sampler_mismatch_max": Figure("train", NATS, "the same, largest of a token"),
    "sampler_mismatch_measured": Figure("train", SHARE, "tokens of the policy on which it was measured"),
    "sampler_mismatch_trimmed": Figure("train", NATS, "the same, mean without the largest 1%"),
    "sampler_mismatch_effective_sample": Figure("train", SHARE, "tokens that would say as much without the mismatch (Kish)"),
    "sampler_mismatch_action": Figure("train", "", "what was done about it: 0 nothing, 1 a warning, 2 a correction"),
    "correction_weight_mean": Figure("train", "", "mean importance weight of a correction"),
    "positive_loss": Figure("train", NATS, "cross-entropy of the successful episodes, where a profile adds it"),
    "sampling_rounds": Figure("rollout", COUNT, "rounds of dynamic sampling"),
    "sampled_groups": Figure("rollout", COUNT, "groups that dynamic sampling played"),
    "signal_groups": Figure("rollout", COUNT, "those of them with more than one reward"),
    "sampling_capped": Figure("rollout", "", "1 where there are fewer of them than the profile asks for"),
    "fidelity": Figure("train", SHARE, "the smaller of the next two: how faithfully programs' episodes are trained on"),
    "fidelity_tokens": Figure("train", SHARE, "tokens sampled for programs that are trained on"),
    "fidelity_rows": Figure("train", SHARE, "rows whose log-probabilities the learner computes as the sampler had them"),
    "requests": Figure("rollout", COUNT, "requests of programs"),
    "requests_refused": Figure("rollout", COUNT, "those that were answered with an error"),
    "requests_unmatched": Figure("rollout", COUNT, "those whose history held an assistant message that the policy did not say"),
    "lost_tokens": Figure("rollout", "tokens", "sampled for answers that no program waited for any more"),
    **{
        f"branches_{reason}": Figure("rollout", COUNT, f"branches of programs' histories: {reason.replace('_', ' ')}")
        for reason in get_args(BranchReason)
        if reason
    },
    "guard_alarm": Figure("train", "", "1 where the guard stepped in"),
}
# Figures of a whole run, by their full names; `*` stands for a policy, a stage or a number.
OF_A_RUN: Mapping[str, tuple[str, str]] = {
    "eval/held_out/*/greedy": (SHARE, "held-out tasks that a policy solves greedily"),
    "eval/held_out/*/sampled": (SHARE, "its sampled episodes that solve theirs"),
    "eval/held_out/*/pass_at_*": (SHARE, "held-out tasks that one of so many samples solves, unbiased estimate"),
    "eval/harder/*/greedy": (SHARE, "tasks of the harder tier that a policy solves greedily"),
    "eval/validation/*": (SHARE, "success on the validation tasks, by iteration; 0 is where the loop starts"),
    "cost/seconds/*": ("s", "seconds of a stage, those of reused results included"),
    "cost/tokens/*": ("tokens", "tokens generated for rollouts and for evaluations"),
    "cost/episodes": (COUNT, "episodes of training"),
    "cost/wall_seconds": ("s", "seconds from the first stage to the report"),
    "cost/money": ("currency", "by the prices of the profile"),
    "cost/seconds_per_point": ("s", "seconds for each point of success gained"),
    "cost/tokens_per_point": ("tokens", "tokens for each point of success gained"),
    "cost/money_per_point": ("currency", "money for each point of success gained"),
    "gate/difference": (SHARE, "success of the new policy less that of the policy to beat, on shared held-out tasks"),
    "gate/interval_low": (SHARE, "lower end of its interval at the gate's level"),
    "gate/interval_high": (SHARE, "upper end"),
    "gate/p_value": ("", "of the paired test"),
    "gate/level": ("", "error that this look may spend"),
    "gate/look": (COUNT, "number of this look at the held-out tasks"),
    "gate/gained": (COUNT, "held-out tasks solved now and not before"),
    "gate/lost": (COUNT, "held-out tasks solved before and not now"),
    "gate/expected_gain": (SHARE, "gain that was expected when the run began"),
    "audit/exploitable": (SHARE, "tasks on which a grader might accept a wrong episode, upper end of the interval"),
    "audit/*/false_accept": (SHARE, "wrong episodes that a verifier accepts"),
    "audit/*/false_accept_high": (SHARE, "upper end of that rate's interval"),
    "audit/*/false_reject": (SHARE, "right episodes that it refuses"),
    "audit/*/unscored": (COUNT, "episodes of the audit on which it raised"),
    "audit/*/tells": (SHARE, "tasks on which a judge puts the right attempt ahead of the wrong one"),
    "audit/*/flips/*": (SHARE, "verdicts of a judge that another order, length or wording flips"),
    "audit/*/injected": (SHARE, "tasks on which some text for the judge makes a wrong attempt win"),
    "splits/*": (COUNT, "tasks by side, and how the sets have changed (docs/splits.md)"),
}


def iteration_name(name: str) -> str:
    """The name of a figure of an iteration with its group; one that the glossary does not know belongs to `train`."""
    known = OF_AN_ITERATION.get(name)
    return f"{known.group if known else 'train'}/{name}"


def knows(name: str) -> bool:
    """Whether the glossary has a figure under its full name."""
    group, _, rest = name.partition("/")
    known = OF_AN_ITERATION.get(rest)
    return (known is not None and known.group == group) or any(fnmatchcase(name, pattern) for pattern in OF_A_RUN)


def glossary_rows() -> list[tuple[str, str, str]]:
    """Name, unit and meaning of each figure, by group."""
    rows = [(f"{figure.group}/{name}", figure.unit, figure.meaning) for name, figure in OF_AN_ITERATION.items()]
    rows += [(name, unit, meaning) for name, (unit, meaning) in OF_A_RUN.items()]
    return sorted(rows, key=lambda row: list(GROUPS).index(row[0].partition("/")[0]))
