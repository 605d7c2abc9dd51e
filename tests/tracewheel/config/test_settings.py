"""The list of settings, and what a profile of an earlier version is told."""

import pytest
import yaml

from tracewheel.config import load_config, load_stored_config
from tracewheel.config.history import REMOVED
from tracewheel.config.settings import declared, settings
from tracewheel.core.errors import ConfigError

LISTED = settings()
NAMES = {one.name for one in LISTED}


def test_a_setting_has_its_path_type_default_and_meaning():
    found = {one.name: one for one in LISTED}
    attempts = found["guard.attempts"]
    assert (attempts.type, attempts.default) == ("whole number (ge=0)", "2")
    assert attempts.meaning == "How often it goes back before it stops."
    assert found["teacher.endpoint"].default is None, "the section needs it"


def test_every_setting_has_a_meaning_and_one_that_a_docstring_names_has_its_sentences():
    assert not [one.name for one in LISTED if not one.meaning]
    found = {one.name: one.meaning for one in LISTED}
    assert found["gate.min_pairs"].endswith("`min_pairs` the minimum number of tasks scored for both policies.")


def test_a_union_lists_the_settings_of_every_kind_and_names_them():
    slots = {one.kinds: one.default for one in LISTED if one.name == "rollout.engine.slots"}
    assert slots == {("transformers",): "32", ("vllm", "vllm_server"): "256"}


def test_a_setting_that_two_sections_have_counts_once():
    assert {"rubric.mode", "evaluation.rubric.mode"} <= NAMES
    assert declared([one for one in LISTED if one.name.endswith("rubric.mode")]) == 1


def test_the_history_names_only_what_is_gone():
    gone = {name for name in REMOVED for known in NAMES if known == name or known.startswith(f"{name}.")}
    assert not gone, "removed, and a setting"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"guard": {"window": 8}}, "guard.window was removed in 0.2: it is 4 now; delete the line"),
        ({"schedule": {"min_expected_gain": 0.01}}, "schedule.min_new_tasks decides; `tracewheel runs worth` of the wheel"),
        ({"guard": {"patience": 3}}, "guard.patience: no such key"),
        ({"rollout": {"mode": "overlap"}}, "rollout.mode: 'overlap' was removed in 0.2: write async"),
        ({"rollout": {"mode": "both"}}, "rollout.mode: Input should be 'sync' or 'async'"),
    ],
)
def test_a_removed_setting_is_refused_with_what_to_do(tmp_path, values, says):
    profile = tmp_path / "profile.yaml"
    profile.write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match=says):
        load_config(profile)


def test_a_stored_profile_of_an_earlier_version_is_read_without_them(tmp_path):
    stored = {"name": "x", "guard": {"window": 8, "attempts": 1}, "rollout": {"mode": "overlap", "group_size": 6}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(stored))
    config = load_stored_config(tmp_path)
    assert (config.guard.attempts, config.rollout.mode, config.rollout.group_size) == (1, "sync", 6)
