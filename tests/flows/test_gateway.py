"""`tracewheel serve --gateway`: a policy behind the vendors' APIs until it is stopped."""

import itertools
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from flows.cli import main

KEY = "a-key-of-24-characters-x"


@pytest.mark.parametrize("key", ["short", "ein Schlüssel mit Umlaut"])
def test_keys_that_are_none(key, capsys):
    assert main(["serve", "configs/tiny.yaml", "--gateway", "--key", key]) == 2
    assert "--key: at least 16 ASCII characters" in capsys.readouterr().err


@pytest.mark.slow
def test_it_serves_an_adapter_until_it_is_stopped(make_adapter, tmp_path):
    state = make_adapter(tmp_path).parent
    words = [
        "serve",
        "configs/tiny.yaml",
        "--gateway",
        "--run-dir",
        str(tmp_path / "run"),
        "--adapter",
        str(state),
        "--port",
        "0",
    ]
    process = subprocess.Popen([sys.executable, "-m", "flows.cli", *words, "--key", KEY], stderr=subprocess.PIPE, text=True)
    try:
        lines = list(itertools.takewhile(lambda line: not line.startswith("OPENAI_API_KEY="), process.stderr))
        told = dict(line.strip().split("=", 1) for line in lines if line.startswith("OPENAI_"))
        asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        own = {"Authorization": f"Bearer {KEY}"}
        answer = httpx.post(f"{told['OPENAI_BASE_URL']}/chat/completions", json=asked, headers=own, timeout=60).json()
        assert answer["system_fingerprint"] == "policy-3"
        assert 1 <= answer["usage"]["completion_tokens"] <= 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert "the gateway has stopped" in process.stderr.read()
    finally:
        process.kill()


@pytest.mark.slow
def test_serve_ends_by_sigterm_however_much_is_half_sent(tmp_path):
    words = ["serve", "configs/tiny.yaml", "--run-dir", str(tmp_path / "run"), "--port", "0", "--key", KEY]
    process = subprocess.Popen([sys.executable, "-m", "flows.cli", *words], stderr=subprocess.PIPE, text=True)
    try:
        line = next(line for line in process.stderr if line.startswith("Serving "))
        url = line.split()[3].rstrip(",").removesuffix("/v1")
        own = {"x-api-key": KEY}
        asked = {"model": "m", "messages": [{"role": "user", "content": "write to ann@mail-of-ann.com"}], "max_tokens": 4}
        assert httpx.post(f"{url}/v1/chat/completions", json=asked, headers=own, timeout=60).status_code == 200
        assert httpx.get(f"{url}/health").json() == {"status": "ok"}
        assert httpx.get(f"{url}/health", headers=own).json()["open"] == 1
        address = (httpx.URL(url).host, httpx.URL(url).port)
        half = [socket.create_connection(address) for _ in range(300)]
        for number, connection in enumerate(half):
            connection.sendall(
                (b"", b"POST /v1/chat/compl", b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")[number % 3]
            )
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        assert process.wait(60) == 143
        assert time.monotonic() - begun < 10
        (log,) = (tmp_path / "run").rglob("conversations-*.jsonl")
        assert "mail-of-ann" not in log.read_text() and log.stat().st_mode & 0o777 == 0o600
        for connection in half:
            connection.close()
    finally:
        process.kill()
