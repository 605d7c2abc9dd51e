"""A specialist's settings, its tasks, and the success of its families."""

import pandas as pd
import pytest

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.core.types import Task
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.sampling.specialists import FamilySampler, families_of, family_rate, specialist_config

FAMILIES = {"a1": "a", "a2": "a", "b1": "b", "c1": "c"}


def profile(**specialists):
    lora = {"rank": 8, "families": {"b": {"rank": 2, "alpha": 4}}}
    values = {"name": "test", "warm_start": {"lora": lora}, "training": {"iterations": 9, "specialists": specialists}}
    return RetrainConfig.model_validate(values)


def test_a_specialist_has_its_own_shape_and_iterations():
    config = profile(groups={"one": ["a"], "two": ["b"]}, iterations=3)
    one, two = (specialist_config(config, families) for families in (("a",), ("b",)))
    assert (one.training.iterations, two.training.iterations) == (3, 3)
    assert (one.warm_start.lora.rank, two.warm_start.lora.rank, two.warm_start.lora.alpha) == (8, 2, 4)
    whole = profile(groups={"one": ["a"], "two": ["b"]})
    assert specialist_config(whole, ("a",)).training.iterations == 9


def test_merge_settings_do_not_change_specialists():
    groups = {"one": ["a"], "two": ["b"]}
    configs = [profile(groups=groups), profile(groups=groups, merges=[{"method": "dare_ties"}])]
    assert configs[0] != configs[1]
    assert specialist_config(configs[0], ("b",)) == specialist_config(configs[1], ("b",))


@pytest.fixture
def curated(tmp_path):
    splits = dict.fromkeys(FAMILIES, "train") | {"c1": "validation"}
    rows = [{"id": name, "family": family, "split": splits[name]} for name, family in FAMILIES.items()]
    pd.DataFrame(rows).to_parquet(tmp_path / "tasks.parquet")
    return tmp_path


def test_a_family_without_a_training_task_is_an_error_that_names_the_families(curated):
    assert families_of(curated, {"one": ["a"]}) == {"a1": "a", "a2": "a", "b1": "b"}
    for missing in ("c", "typo"):
        with pytest.raises(DataError, match=rf"groups\.two: no training task is of {missing}; the families are a, b"):
            families_of(curated, {"one": ["a"], "two": ["b", missing]})


class WithVariants(TaskSampler):
    """A sampler whose pool holds tasks that curation did not make."""

    def variants(self, task_ids):
        made = {name: Task(name, "", "b", 1, "", {}, {}, "", name) for name in self._task_ids if name.startswith("variant")}
        return [made[name] for name in task_ids if name in made]


def test_a_specialist_is_offered_the_tasks_of_its_families_and_their_variants():
    whole = WithVariants(RetrainConfig(name="test").sampler, [*FAMILIES, "variant-1"], seed=0)
    assert sorted(FamilySampler(whole, FAMILIES, ["a"]).select(9, 1)) == ["a1", "a2"]
    assert sorted(FamilySampler(whole, FAMILIES, ["b", "c"]).select(9, 1)) == ["b1", "c1", "variant-1"]
    assert FamilySampler(whole, FAMILIES, ["a"]).select(9, 1, exclude=["a1"]) == ["a2"]


def test_specialists_share_their_observations():
    whole = TaskSampler(RetrainConfig(name="test").sampler, FAMILIES, seed=0)
    FamilySampler(whole, FAMILIES, ["a"]).observe("a1", 3, 1)
    assert whole.posterior("a1") == (4.0, 2.0)


def test_a_specialist_is_ranked_by_its_families_weighted_by_tasks():
    def rates(greedy, sampled, n, scored=None):
        return {"greedy": {"rate": greedy, "n": n}, "sampled": {"rate": sampled, "n": n if scored is None else scored}}

    evaluation = {"by_family": {"a": rates(1.0, 0.5, 3), "b": rates(0.0, 0.1, 1), "c": rates(0.2, None, 5, scored=0)}}
    assert family_rate(evaluation, ["a"]) == 0.75
    assert family_rate(evaluation, ["a", "b"]) == pytest.approx((0.75 + 0.4) / 2)
    assert family_rate(evaluation, ["a", "absent"]) == 0.75
    assert family_rate(evaluation, ["c"]) is None, "no sampled episode of the family is scored"
    assert family_rate(evaluation, ["absent"]) is None
