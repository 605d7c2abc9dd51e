"""`tracewheel gateway`: a policy behind the vendors' APIs until it is stopped."""

import itertools
import signal
import subprocess
import sys

import httpx
import pytest

from flows.cli import main

KEY = "a-key-of-24-characters-x"


@pytest.mark.parametrize("key", ["short", "ein Schlüssel mit Umlaut"])
def test_keys_that_are_none(key, capsys):
    assert main(["gateway", "configs/tiny.yaml", "--key", key]) == 2
    assert "--key: at least 16 ASCII characters" in capsys.readouterr().err


@pytest.mark.slow
def test_it_serves_an_adapter_until_it_is_stopped(make_adapter, tmp_path):
    state = make_adapter(tmp_path).parent
    words = ["gateway", "configs/tiny.yaml", "--run-dir", str(tmp_path / "run"), "--adapter", str(state), "--port", "0"]
    process = subprocess.Popen([sys.executable, "-m", "flows.cli", *words, "--key", KEY], stderr=subprocess.PIPE, text=True)
    try:
        lines = list(itertools.takewhile(lambda line: not line.startswith("ANTHROPIC_API_KEY="), process.stderr))
        told = dict(line.strip().split("=", 1) for line in lines if line.startswith(("OPENAI_", "ANTHROPIC_")))
        assert len(told) == 3, "".join(lines)
        assert told["OPENAI_API_KEY"] == KEY
        asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        own = {"Authorization": f"Bearer {KEY}"}
        answer = httpx.post(f"{told['OPENAI_BASE_URL']}/chat/completions", json=asked, headers=own, timeout=60).json()
        assert answer["system_fingerprint"] == "policy-3"
        answer = httpx.post(f"{told['ANTHROPIC_BASE_URL']}/v1/messages", json=asked, headers=own, timeout=60).json()
        assert 1 <= answer["usage"]["output_tokens"] <= 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert "the gateway has stopped" in process.stderr.read()
    finally:
        process.kill()
