"""vLLM's server: killed, run elsewhere, missing, failing and misconfigured. The rest is in the engines' contract."""

import os
import random
import signal
import threading
import time

import pytest

from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.core.processes import free_port
from tracewheel.engines.making import make_engine
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.rollout import RolloutPlan, run_episodes

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def remote(kind_of):
    return kind_of("vllm_server")


@pytest.fixture(scope="module")
def servers(remote, base):
    return remote.servers(base)


def test_a_rollout_whose_server_is_killed_has_the_tokens_of_the_transformers_engine(remote, kind_of, servers, versions):
    """The server is killed twice; every trajectory is there once, with every token."""
    rng = random.Random(8)
    tasks = [make_task(family, tier, rng) for family in FAMILIES for tier in (1, 2, 3)]
    starts, kills = servers.own[0].starts, []

    def kill(done, _):
        if done in (3, 12):
            kills.append(servers.own[0].process_id())
            os.kill(servers.own[0].process_id(), signal.SIGKILL)

    def rollout(kind, progress=None):
        engine, renderer = kind.make(versions.policy(1))
        settings = kind.profile().rollout
        return run_episodes(engine, renderer, settings, RolloutPlan(tasks, samples=2, seed=1), progress=progress)

    expected = rollout(kind_of("transformers"))
    found = rollout(remote, kill)
    assert len(set(kills)) == 2
    assert servers.own[0].starts == starts + 2
    assert [each.token_ids for each in found] == [each.token_ids for each in expected]
    pairs = [
        (a, b) for one, other in zip(found, expected, strict=True) for a, b in zip(one.logprobs, other.logprobs, strict=True)
    ]
    assert max(abs(a - b) for a, b in pairs) < 1e-4


def test_a_running_server_is_used_by_its_address(remote, servers, versions):
    """Another process's server, as far as this engine can tell."""
    from tracewheel.engines.vllm_remote import VllmServers
    from tracewheel.engines.vllm_settings import VllmSettings

    policy, profile = versions.policy(1), remote.profile({"servers": (servers.own[0].url + "/v1",)})
    others = VllmServers(policy.base, VllmSettings.of(profile), profile.rollout.engine)
    sampled = []
    for engine in (remote.engine(policy), remote.engine(policy, servers=others)):
        remote.submit(engine, remote.openings(4))
        sampled.append({n: turn.token_ids for n, turn in remote.finish(engine, 4).items()})
    assert sampled[0] == sampled[1]
    others.close()


def test_a_missing_server_is_an_error_in_time(remote, base):
    profile = remote.profile({"servers": (f"http://127.0.0.1:{free_port()}",), "patience": 2})
    began = time.monotonic()
    with pytest.raises(InfrastructureError, match="no answer for 2 s"):
        make_engine(profile, PolicyRef(base), greedy=False, slots=1)
    assert time.monotonic() - began < 30


def test_the_error_for_a_server_that_cannot_start_ends_with_its_log(remote, base):
    from tracewheel.engines.vllm_server import VllmServer
    from tracewheel.engines.vllm_settings import VllmSettings

    server = VllmServer(base, VllmSettings.of(remote.profile({"kv_cache_gib": 100_000})), patience=240)
    with pytest.raises(InfrastructureError, match=r"end of its log:(.|\n)*memory"):
        server.ensure()
    server.stop()


def test_a_server_without_our_logits_processor_is_refused(remote, base):
    """A stand-in that follows the protocol but chooses tokens by itself."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Plain(BaseHTTPRequestHandler):
        def do_GET(self):
            self._send(b'{"data": [{"id": "x", "parent": null, "max_model_len": 4096}]}')

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(
                b'{"choices": [{"token_ids": [7], "finish_reason": "length", "logprobs": {"content": [{"logprob": -1.5}]}}]}'
            )

        def _send(self, body):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Plain)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.raises(ConfigError, match="logits-processors"):
        address = f"http://127.0.0.1:{server.server_port}"
        make_engine(remote.profile({"servers": (address,)}), PolicyRef(base), greedy=False, slots=1)
    server.shutdown()
