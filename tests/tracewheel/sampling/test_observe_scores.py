"""What the sampler learns from an iteration's scores."""

from tracewheel.config import SamplerConfig
from tracewheel.core.types import Score
from tracewheel.sampling.sampler import TaskSampler, observe_scores
from tracewheel.scoring.score import write_scores


def test_the_sampler_counts_scored_outcomes_only(tmp_path):
    def score(number, task, status, success):
        breakdown = {} if success is None else {"success": success}
        return Score(f"t{number}", task, task, status, success, breakdown)

    outcomes = [
        ("a", "scored", 1.0),
        ("a", "scored", 0.0),
        ("a", "scored", 1.0),
        ("a", "unscored", None),
        ("b", "unscored", None),
    ]
    write_scores(tmp_path / "scores.parquet", [score(i, *outcome) for i, outcome in enumerate(outcomes)])
    sampler = TaskSampler(SamplerConfig(), ["a", "b"], seed=0)
    observe_scores(sampler, tmp_path / "scores.parquet")
    assert sampler.posterior("a") == (3.0, 2.0)
    assert sampler.posterior("b") == (1.0, 1.0)
