"""`tracewheel serve --gateway` says where the clients of these dialects ask."""

import itertools
import signal
import subprocess
import sys

import httpx
import pytest

KEY = "a-key-of-the-wheel"


@pytest.mark.slow
def test_it_tells_the_variables_of_each_vendor(make_adapter, tmp_path):
    words = ["serve", "configs/tiny.yaml", "--gateway", "--run-dir", str(tmp_path / "run"), "--port", "0", "--key", KEY]
    words += ["--adapter", str(make_adapter(tmp_path).parent)]
    process = subprocess.Popen([sys.executable, "-m", "flows.cli", *words], stderr=subprocess.PIPE, text=True)
    try:
        lines = [*itertools.takewhile(lambda line: not line.startswith("ANTHROPIC_API_KEY="), process.stderr)]
        names = ("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_")
        told = dict(line.strip().split("=", 1) for line in lines if line.startswith(names))
        assert len(told) == 5 and told["OPENAI_API_KEY"] == told["GEMINI_API_KEY"] == KEY, "".join(lines)
        asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        url = f"{told['ANTHROPIC_BASE_URL']}/v1/messages"
        answer = httpx.post(url, json=asked, headers={"x-api-key": KEY}, timeout=60).json()
        assert 1 <= answer["usage"]["output_tokens"] <= 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    finally:
        process.kill()
