"""Several servers, and sleep, against small HTTP servers that speak vLLM's endpoints: the CPU build can do neither.

A server samples as vLLM does with our logits processor: a token depends on the session's random number, not on the server.
"""

import asyncio
import dataclasses
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tracewheel.config import EngineSections, RetrainConfig
from tracewheel.core.errors import InfrastructureError
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.draws import Draws
from tracewheel.engines.vllm_client import VllmClient
from tracewheel.engines.vllm_remote import VllmServerEngine, VllmServers
from tracewheel.engines.vllm_server import command_line
from tracewheel.engines.vllm_settings import VllmSettings, environment
from tracewheel.policy.adapters import PolicyRef

PATIENCE = 20.0


class VllmProtocol(ThreadingHTTPServer):
    """`refuses`: every generation gets 503, as while a server goes down. `can_sleep` is VLLM_SERVER_DEV_MODE."""

    daemon_threads = True

    def __init__(self, can_sleep=True):
        super().__init__(("127.0.0.1", 0), Handler)
        self.refuses = self.asleep = False
        self.can_sleep = can_sleep
        self.paths, self.sessions, self.adapters = [], [], []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/v1/models":
            return self.answer(200, {"data": [{"id": "base", "max_model_len": 4096}]})
        return self.answer(200, {"is_sleeping": self.server.asleep})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or "{}")
        self.server.paths.append(self.path)
        if self.path.startswith(("/sleep", "/wake_up")):
            if not self.server.can_sleep:
                return self.answer(404, {"detail": "Not Found"})
            self.server.asleep = self.path.startswith("/sleep")
            return self.answer(200, {"status": "done"})
        if self.server.refuses:
            return self.answer(503, {"detail": "going down"})
        if self.path == "/inference/v1/generate":
            return self.answer(200, {"choices": [self.turn(body)]})
        if self.path == "/v1/load_lora_adapter":
            self.server.adapters.append(body["lora_name"])
        return self.answer(200, {})

    def turn(self, body):
        draws, count = Draws.of(body["sampling_params"]["extra_args"]), body["sampling_params"]["max_tokens"]
        if body.get("request_id"):
            self.server.sessions.append(draws.seed)
        tokens = list(draws.forced)[:count] or [10 + int(number * 1000) for number in draws.uniforms(count)]
        content = [{"logprob": -draws.temperature} for _ in tokens]
        return {"token_ids": tokens, "logprobs": {"content": content}, "finish_reason": "length"}

    def answer(self, status, body):
        written = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)


@pytest.fixture
def servers():
    found = [VllmProtocol() for _ in range(3)]
    yield found
    for server in found:
        server.shutdown()
        server.server_close()


@pytest.fixture
def engine_of(base):
    opened = []

    def make(servers, policy=None):
        profile = RetrainConfig.model_validate(
            {
                "name": "test",
                "policy": {"base": base},
                "rollout": {"engine": {"kind": "vllm_server", "servers": [one.url for one in servers], "patience": PATIENCE}},
            }
        )
        settings = VllmSettings.of(EngineSections.of(profile))
        opened.append(VllmServers(base, settings, profile.rollout.engine))
        return VllmServerEngine(lambda _: opened[-1], policy or PolicyRef(base), 2, Sampling())

    yield make
    for one in opened:
        one.close()


def play(engine, sessions, turns=3):
    """The tokens of all sessions, each of `turns` turns of four tokens."""
    found = {number: [] for number in range(sessions)}
    for _ in range(turns):
        for number in found:
            engine.submit(Request(number, [5, 6], 4, seed=number))
        left = sessions
        while left:
            for generation in engine.step():
                found[generation.session] += generation.token_ids
                left -= 1
    return found


def test_requests_are_spread_and_every_server_has_the_adapter(engine_of, servers, base, adapter):
    found = play(engine_of(servers, PolicyRef(base, str(adapter), 3)), 9)
    assert [len(server.sessions) for server in servers] == [9, 9, 9], "three sessions of three turns each"
    assert [len(server.adapters) for server in servers] == [1, 1, 1]
    assert found == play(engine_of(servers[:1], PolicyRef(base, str(adapter), 3)), 9), "the same tokens on one server"


def test_the_work_of_a_dead_server_goes_to_the_others_and_back(engine_of, servers):
    expected = play(engine_of(servers[:1]), 6)
    engine = engine_of(servers)
    servers[1].refuses = True
    before = len(servers[1].sessions)
    assert play(engine, 6) == expected
    assert len(servers[1].sessions) == before
    servers[1].refuses = False
    for number in range(100, 300):  # until the server has been asked whether it is back
        engine.submit(Request(3 * number + 1, [5, 6], 4, seed=number))
        while not engine.step():
            pass
        if len(servers[1].sessions) > before:
            return
    raise AssertionError("the server never got its sessions back")


def settings_of(base):
    profile = RetrainConfig.model_validate(
        {"name": "test", "policy": {"base": base}, "rollout": {"engine": {"kind": "vllm_server"}}}
    )
    return VllmSettings.of(EngineSections.of(profile))


def test_a_server_sleeps_and_wakes(base):
    server = VllmProtocol()

    async def both():
        client = VllmClient(server.url, settings_of(base), PATIENCE)
        await client.sleep()
        assert server.asleep
        await client.wake()
        assert not server.asleep

    asyncio.run(both())
    assert server.paths == ["/sleep?level=1", "/wake_up"]
    server.shutdown()


def test_a_server_that_cannot_sleep_is_an_error(base):
    server = VllmProtocol(can_sleep=False)
    with pytest.raises(InfrastructureError, match="/sleep.*VLLM_SERVER_DEV_MODE=1"):
        asyncio.run(VllmClient(server.url, settings_of(base), PATIENCE).sleep())
    server.shutdown()


def test_sleep_is_asked_of_vllm_only_where_the_profile_says_so(base):
    profile = {"name": "test", "policy": {"base": base, "device": "cuda"}, "rollout": {"engine": {"kind": "vllm"}}}
    asleep, awake = (
        VllmSettings.of(EngineSections.of(RetrainConfig.model_validate(profile | {"placement": {"share": share}})))
        for share in ("sleep", "memory")
    )
    assert asleep.arguments(base) == awake.arguments(base) | {"enable_sleep_mode": True}
    assert dataclasses.replace(asleep, sleeps=False) == awake


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_head_is_in_float32_as_the_learners(base, dtype):
    profile = {"name": "test", "policy": {"base": base, "dtype": dtype}, "rollout": {"engine": {"kind": "vllm"}}}
    arguments = VllmSettings.of(EngineSections.of(RetrainConfig.model_validate(profile))).arguments(base)
    flags = [flag for flag in command_line(arguments) if "override" in flag]
    assert flags == (['--hf-overrides={"head_dtype": "float32"}'] if dtype == "bfloat16" else [])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_on_a_gpu_one_setting_asks_for_sums_in_one_order(base, device):
    policy = {"base": base, "device": device, "deterministic": True}
    profile = {"name": "test", "policy": policy, "rollout": {"engine": {"kind": "vllm"}}}
    settings = VllmSettings.of(EngineSections.of(RetrainConfig.model_validate(profile)))
    assert settings.batch_invariant == (device == "cuda")
    assert environment(settings, in_process=True).get("VLLM_BATCH_INVARIANT") == ("1" if device == "cuda" else None)
    assert settings.arguments(base).get("max_num_batched_tokens") == (16_384 if device == "cuda" else None)
