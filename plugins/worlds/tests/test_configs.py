"""The shipped profiles."""

from pathlib import Path

import pytest

from tracewheel.config import load_config
from tracewheel_projects import load_base_config, world_of

CONFIGS = Path(__file__).parents[1] / "configs"


@pytest.mark.parametrize("name", ["assistant", "retrieval", "mixed"])
def test_a_profile_parses_and_its_bases_skills_are_those_of_its_world(name):
    assert load_config(CONFIGS / f"{name}.yaml").policy.base == f"data/{name}/base"
    config = load_base_config(CONFIGS / f"{name}_base.yaml")
    assert config.world == name
    assert {skill for phase in config.phases for skill in phase.skills} <= set(world_of(name).skills)
