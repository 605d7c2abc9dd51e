"""Data names built-in kinds, and of others only those that the user named: nothing else is imported, started or opened."""

import os
import pickle
import sys
from dataclasses import replace

import pytest
import yaml

from tracewheel.config import EnvironmentConfig, load_config, load_stored_config
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.kind_table import VARIABLE, give, give_changed, is_given, may_import, naming_nothing
from tracewheel.core.kinds import kind_text
from tracewheel.curation.replay import replay_trace
from tracewheel.environments import make_environment
from tracewheel.scoring.verifiers import make_verifier
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.building import build_trace
from tracewheel.traces.readers.reader import Place, RawTrace

RUNS = {"args": ["sh", "-c", "touch ran"]}


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, "[]")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted.py").write_text("open('ran', 'w').close()\nclass Kind:\n    kind = 'planted:Kind'\n")
    yield
    assert not (tmp_path / "ran").exists() and "planted" not in sys.modules


@pytest.mark.parametrize(
    "verifier",
    [
        "planted:Kind",
        "subprocess:Popen",
        kind_text("subprocess:Popen", RUNS),
        kind_text("unit_tests", {"sandbox": {"kind": "unsafe_local"}}),
    ],
)
def test_no_verifier_that_only_data_names(verifier):
    with pytest.raises(ConfigError, match="name it"):
        make_verifier(verifier)


@pytest.mark.parametrize(
    "environment",
    [
        "planted:Kind",
        "recorded:/etc",
        kind_text("subprocess:Popen", RUNS),
        kind_text("recorded", {"path": "/etc"}),
        kind_text("mcp", {"command": ["sh", "-c", "touch ran"]}),
        kind_text("refund_desk", {"user": {"kind": "planted:Kind"}}),
        kind_text("refund_desk", {"user": {"kind": "endpoint", "args": {"endpoint": "http://127.0.0.1:9/v1", "model": "m"}}}),
        kind_text("several", {"members": [{"kind": "workspace"}, {"kind": "planted:Kind"}]}),
        kind_text("several", {"members": [{"kind": "workspace"}, {"kind": "mcp", "args": {"command": ["sh"]}}]}),
    ],
)
def test_no_environment_that_only_data_names(environment):
    check_refused(environment)


def check_refused(environment):
    with pytest.raises(ConfigError, match="name it"):
        made = make_environment(environment)
        made.reset(None)


def test_what_the_user_names_is_made_and_nothing_beside_it():
    spec = kind_text("mcp", {"url": "http://127.0.0.1:9"})
    give(spec, "tests.tracewheel.core.test_given_kinds:Desk")
    assert make_environment(spec).kind == "mcp"
    with pytest.raises(ConfigError, match="same arguments"):
        make_environment(kind_text("mcp", {"url": "http://127.0.0.1:10"}))
    assert may_import("tests.tracewheel.core.other:Kind") and not may_import("tests.tracewheel.conftest:Kind")
    # Of a module that the user named, a kind; not whatever the module imports.
    with pytest.raises(ConfigError, match="no class of that module"):
        make_verifier("tests.tracewheel.core.test_given_kinds:RawTrace")


def test_a_profile_names_and_a_stored_one_does_not(tmp_path):
    profile = {"policy": {"base": "b"}, "environment": {"kind": "desk:Desk", "verifiers": ["grader:Right"]}}
    for place in ("profile.yaml", "config.yaml"):
        (tmp_path / place).write_text(yaml.safe_dump(profile))
    stored = load_stored_config(tmp_path)
    assert stored.environment.kind == "desk:Desk" and not may_import("desk:Desk")
    load_config(tmp_path / "profile.yaml")
    assert may_import("desk:Other") and may_import("grader:Right") and not may_import("grade:Right")


def test_a_section_that_reaches_another_process_names_there_too(monkeypatch):
    with naming_nothing():
        packed = pickle.dumps(EnvironmentConfig(kind="desk:Desk"))
    assert not may_import("desk:Desk")
    pickle.loads(packed)
    assert may_import("desk:Desk")


@pytest.mark.parametrize("verifier", [kind_text("subprocess:Popen", RUNS), "planted:Kind", '{"kind": 3}', "{" * 20_000])
def test_a_record_with_such_a_verifier_is_one_quarantined_record(verifier):
    environment = {"kind": "mcp", "prompt": "Do it.", "verifier": verifier}
    messages = [{"role": "user", "content": "Do it."}, {"role": "assistant", "content": "Done."}]
    found = RawTrace(messages, environment=environment)
    with pytest.raises(InvalidRecord, match="verifier"):
        build_trace("openai", Place("log", 1), found)


@pytest.mark.parametrize("verifier", [kind_text("exact_match", {"nonsense": 1}), "no_such"])
def test_a_logged_verifier_that_cannot_be_made_costs_its_trace_alone(verifier):
    spec = kind_text("mcp", {"command": ["true"]})
    give(spec)
    messages = [{"role": "user", "content": "Do it."}, {"role": "assistant", "content": "Done."}]
    logged = {"kind": "mcp", "prompt": "Do it.", "verifier": verifier}
    found = build_trace("openai", Place("log", 1), RawTrace(messages, environment={"kind": "mcp", "prompt": "Do it."}))
    trace = replace(found, environment=logged)
    with pytest.raises(DataError, match="the verifier that the log names"):
        replay_trace(trace, make_environment(spec))


def test_the_kinds_of_a_thousand_iterations_fit_into_a_variable():
    spec = give(kind_text("refund_desk", {"user": {"kind": "scripted"}}))
    for seed in range(1000):
        give_changed("workspace", kind_text("workspace", {"noise_seed": seed}))
        made = give_changed(spec, kind_text("refund_desk", {"user": {"kind": "scripted"}, "noise_seed": seed}))
    assert is_given(made) and len(os.environ[VARIABLE]) < 64 << 10


class Desk:
    kind = "tests.tracewheel.core.test_given_kinds:Desk"
