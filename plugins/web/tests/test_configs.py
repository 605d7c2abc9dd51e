"""The shipped profiles."""

from pathlib import Path

import pytest

from tracewheel import load_config
from tracewheel_projects import load_base_config
from tracewheel_web.miniwob.base_text import SKILLS
from tracewheel_web.miniwob.paper import PAGES

CONFIGS = Path(__file__).parents[1] / "configs"


@pytest.mark.parametrize(("name", "kind"), [("miniwob", "miniwob"), ("shop", "shop")])
def test_a_profile_parses(name, kind):
    config = load_config(CONFIGS / f"{name}.yaml")
    assert config.environment.kind == kind and config.curation.min_attempts == 0


def test_the_profiles_of_learning_name_the_pages_and_the_skills():
    config, base = load_config(CONFIGS / "miniwob_learning.yaml"), load_base_config(CONFIGS / "miniwob_base.yaml")
    assert {*config.environment.args["pages"]} == {*PAGES} >= {*base.complete_families}
    assert all(phase.skills.keys() <= SKILLS.keys() for phase in base.phases)
    assert config.policy.base == "data/web/base" and len([*CONFIGS.glob("*.yaml")]) == 4
