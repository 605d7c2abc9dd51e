"""The page about your environment, its marketing team: its snippets are the example's, its profile and its names hold."""

import re
from pathlib import Path

import pytest
import yaml

from tracewheel.config import RetrainConfig
from tracewheel.environments import make_environment

ROOT = Path(__file__).parents[2]
_, _, PAGE = (ROOT / "docs" / "your-environment.md").read_text().partition("## A verifier that an audit may attack")
PAGE, _, _ = PAGE.partition("\n## ")
EXAMPLE = (ROOT / "examples" / "marketing_environment.py").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)\n```", PAGE, re.DOTALL)


def test_the_page_has_snippets():
    assert len(SNIPPETS) == 2


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_each_snippet_stands_in_the_example(snippet):
    assert f"\n{snippet}\n" in EXAMPLE


def test_the_profile_of_the_page_names_the_example():
    (profile,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    config = RetrainConfig.model_validate(yaml.safe_load(profile))
    kind = make_environment(config.environment.kind).kind
    assert set(re.findall(r"examples\.\w+:\w+", PAGE)) == {kind}
