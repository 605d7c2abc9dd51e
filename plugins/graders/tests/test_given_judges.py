"""A log may name a judge; it is made only where the user named the same one."""

from dataclasses import replace

import pytest

from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.kind_table import VARIABLE, give
from tracewheel.core.kinds import kind_text
from tracewheel.curation.replay import replay_trace
from tracewheel.environments import make_environment
from tracewheel.scoring.verifiers import make_verifier
from tracewheel.traces.readers.building import build_trace
from tracewheel.traces.readers.reader import Place, RawTrace

ENDPOINT = {"models": [{"endpoint": "http://127.0.0.1:9/v1", "model": "m"}], "criteria": [{"name": "a", "ask": "?"}]}
MESSAGES = [{"role": "user", "content": "Do it."}, {"role": "assistant", "content": "Done."}]


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch):
    monkeypatch.setenv(VARIABLE, "[]")


@pytest.mark.parametrize("args", [ENDPOINT, ENDPOINT | {"model": "\ud83d"}])
def test_no_judge_that_only_data_names(args):
    with pytest.raises(ConfigError, match="name it"):
        make_verifier(kind_text("judge", args))


def test_a_logged_judge_costs_its_trace_alone():
    spec = give(kind_text("mcp", {"command": ["true"]}))
    found = build_trace("openai", Place("log", 1), RawTrace(MESSAGES, environment={"kind": "mcp", "prompt": "Do it."}))
    logged = {"kind": "mcp", "prompt": "Do it.", "verifier": kind_text("judge", ENDPOINT)}
    with pytest.raises(DataError, match="the verifier that the log names"):
        replay_trace(replace(found, environment=logged), make_environment(spec))
