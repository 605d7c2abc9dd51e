"""Sections of a profile that belong to wheels."""

import pytest
import yaml

from tracewheel.config import PolicyConfig, RetrainConfig, load_config, load_stored_config
from tracewheel.config.base import Count, Strict
from tracewheel.config.wheel_sections import STAGES
from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import naming_nothing
from tracewheel.core.tool_formats import FORMATS


class Settings(Strict):
    size: Count = 3


class Stage:
    Settings = Settings


@pytest.fixture
def profile(tmp_path, monkeypatch):
    """A profile with a section of a wheel, in a process where no other wheel has one."""
    monkeypatch.setitem(vars(STAGES), "wheels", {})
    monkeypatch.setitem(STAGES._set, "polish", Stage)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"name": "p", "polish": {"size": 5}}))
    return path


def test_a_section_is_read_by_its_wheel_and_kept(profile):
    config = load_config(profile, ["polish.size=7"])
    assert config.wheel_sections == ("polish",) and config.polish == Settings(size=7)
    stored = config.model_dump(mode="json")
    assert stored["polish"] == {"size": 7} and RetrainConfig.model_validate(stored) == config
    assert load_config(profile).model_copy(update={"seed": 4}).polish.size == 5


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("polish.size=0", "polish.size: Input should be greater than or equal to 1"),
        ("polish.sise=1", "polish.sise: no such key"),
        ("polsh={}", "polsh: no such key"),
        ("prompt={}", r"section prompt is not installed: pip install tracewheel-prompts \(in a checkout: make setup-plugins\)"),
    ],
)
def test_what_is_wrong_is_named(profile, override, says):
    with pytest.raises(ConfigError, match=says):
        load_config(profile, [override])


def test_a_stored_run_is_read_without_its_wheels(profile):
    values = yaml.safe_load(profile.read_text()) | {"prompt": {"parts": ["system"]}}
    profile.write_text(yaml.safe_dump(values))
    config = load_stored_config(profile.parent)
    assert config.wheel_sections == ("polish", "prompt") and config.polish == {"size": 5}
    profile.write_text(yaml.safe_dump(values | {"polsh": {}}))
    with pytest.raises(ConfigError, match="polsh: no such key"):
        load_stored_config(profile.parent)


def test_a_tool_format_without_its_wheel_is_refused_in_a_profile_and_not_in_a_stored_one(monkeypatch):
    monkeypatch.setitem(vars(FORMATS), "wheels", {})
    with pytest.raises(ValueError, match="tool format 'mistral' is not installed: pip install tracewheel-formats"):
        PolicyConfig(tool_format="mistral")
    with naming_nothing():
        assert PolicyConfig(tool_format="mistral").tool_format == "mistral"
    with pytest.raises(ValueError, match="no tool format is called 'morse'; known: auto, hermes, pythonic"):
        PolicyConfig(tool_format="morse")
