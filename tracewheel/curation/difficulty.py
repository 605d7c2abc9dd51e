"""How hard a task is: Beta posteriors of its pass rate, and tiers.

The posterior of a task solved s times and failed f times is Beta(1 + s, 1 + f). Counts of earlier runs decay with each run,
because an older policy produced them. The sampler of the training tasks keeps its counts in the same form.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from scipy import special

from tracewheel.core.errors import DataError
from tracewheel.curation.curated_folder import HARDER, TRAIN
from tracewheel.curation.pass_counts import KeptPassCounts, PassCounts

if TYPE_CHECKING:
    import pandas

CONFIDENCE = 0.9
DECAY = 0.5  # the share of the evidence of earlier runs that is kept
TIERS = (0.8, 0.6, 0.4, 0.2)  # the pass rates that separate tiers: tasks above the first are tier 1


def pass_rates(episodes: pandas.DataFrame, earlier: KeptPassCounts | None = None) -> tuple[pandas.DataFrame, KeptPassCounts]:
    """The pass rate of each task.

    Args:
        episodes: Has `id` (the trace's), `task_id` and `success`, NaN for an unscored episode, which is not counted.
        earlier: The counts of the last curation. They are decayed, and episodes counted there do not count again.

    Returns:
        A row a task, and the counts to keep for the next curation. The columns: `task_id`; `attempts` and `successes` in
        these episodes; `pass_rate`, the share of successes in the counts, NaN without any; `posterior`, `low` and `high`, the
        mean of the Beta posterior and its central 90%; and `pass_tier`, from 1 for the easiest.
    """
    import pandas

    earlier = earlier or KeptPassCounts.of(PassCounts())
    counts = earlier.counts.decayed(DECAY)
    scored = episodes[episodes["success"].notna()]
    tried = _attempts(scored)
    fresh = scored[~earlier.has_counted(scored)]
    for task_id, (attempts, successes) in _attempts(fresh).items():
        counts.observe(task_id, successes, attempts - successes)
    rows = []
    for task_id in sorted(set(episodes["task_id"])):
        attempts, successes = tried.get(task_id, (0, 0))
        held = counts.get(task_id)
        alpha, beta = counts.posterior(task_id)
        mean = alpha / (alpha + beta)
        rows.append(
            {
                "task_id": task_id,
                "attempts": attempts,
                "successes": successes,
                "pass_rate": held[0] / sum(held) if held else float("nan"),
                "posterior": mean,
                "low": beta_quantile(alpha, beta, (1 - CONFIDENCE) / 2),
                "high": beta_quantile(alpha, beta, (1 + CONFIDENCE) / 2),
                "pass_tier": pass_tier(mean),
            }
        )
    columns = ["task_id", "attempts", "successes", "pass_rate", "posterior", "low", "high", "pass_tier"]
    kept = KeptPassCounts.of(counts, earlier.counted, fresh.rename(columns={"id": "trace_id"}))
    return pandas.DataFrame(rows, columns=columns), kept


def _attempts(scored: pandas.DataFrame) -> dict[str, tuple[int, int]]:
    """Attempts and successes by task id."""
    solved = (scored["success"] >= 1.0).groupby(scored["task_id"]).agg(["size", "sum"])
    return {
        str(task_id): (int(attempts), int(successes))
        for task_id, attempts, successes in zip(solved.index, solved["size"], solved["sum"], strict=True)
    }


def pass_tier(pass_rate: float) -> int:
    """The tier of a pass rate: 1 above the first bound, and one more for each bound it does not exceed."""
    return 1 + sum(pass_rate <= bound for bound in TIERS)


def held_out_tier(training_tiers: Iterable[int], tiers: Iterable[int] = ()) -> int:
    """The tier of the harder held-out tasks: the next above the hardest training tier.

    Args:
        training_tiers: Tiers of the training tasks.
        tiers: All tiers; an environment may skip numbers.

    Raises:
        DataError: there are no training tasks.
    """
    trained = [int(tier) for tier in training_tiers]
    if not trained:
        raise DataError("no training tasks: there is no hardest tier to go one above")
    hardest = max(trained)
    return min((int(tier) for tier in tiers if tier > hardest), default=hardest + 1)


def check_held_out_tier(tasks: pandas.DataFrame) -> None:
    """Check that the harder held-out tasks are one tier above the hardest training task.

    Args:
        tasks: All tasks, with `tier` and `split` ("" for unused tasks).

    Raises:
        DataError: they are not; the message names the right `curation.harder_tier`.
    """
    harder = sorted({int(tier) for tier in tasks.loc[tasks["split"] == HARDER, "tier"]})
    if not harder:
        return
    wanted = held_out_tier(tasks.loc[tasks["split"] == TRAIN, "tier"], tasks["tier"])
    if harder != [wanted]:
        raise DataError(
            f"the harder held-out tasks are of tier {', '.join(map(str, harder))}, and one above the hardest trained on would"
            f" be {wanted}: set curation.harder_tier to {wanted}"
        )


def beta_below(alpha: float, beta: float, x: float) -> float:
    """P(p < x) for p ~ Beta(alpha, beta): the regularised incomplete beta function, 0 below and 1 above the unit interval."""
    return float(special.betainc(alpha, beta, min(max(x, 0.0), 1.0)))


def beta_quantile(alpha: float, beta: float, probability: float) -> float:
    """The x with P(p < x) = probability for p ~ Beta(alpha, beta)."""
    return float(special.betaincinv(alpha, beta, probability))
