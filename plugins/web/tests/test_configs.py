"""The shipped profiles."""

from pathlib import Path

import pytest

from tracewheel import load_config

CONFIGS = Path(__file__).parents[1] / "configs"


@pytest.mark.parametrize(("name", "kind"), [("miniwob", "miniwob"), ("shop", "shop")])
def test_a_profile_parses(name, kind):
    config = load_config(CONFIGS / f"{name}.yaml")
    assert config.environment.kind == kind and config.curation.min_attempts == 0
    assert {path.name for path in CONFIGS.glob("*.yaml")} == {"miniwob.yaml", "shop.yaml"}
