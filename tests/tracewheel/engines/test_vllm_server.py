"""vLLM as a server: the same tokens as in process, whatever happens to the server on the way."""

import os
import random
import shutil
import signal
import threading
import time

import pytest

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import AdapterMismatchError, ConfigError, InfrastructureError
from tracewheel.core.processes import free_port
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.making import make_engine
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.rollout import run_episodes

pytestmark = pytest.mark.vllm

SELDOM = 431
HOT = Sampling(temperature=2.0)


def profile_of(config, **engine):
    engine = {"kind": "vllm_server", "slots": 32, "kv_cache_gib": 0.25, "patience": 240, **engine}
    return RetrainConfig.model_validate(config.model_dump() | {"rollout": {"engine": engine}})


@pytest.fixture(scope="module")
def servers(config, base):
    """One server of our own, for all tests of this file."""
    from tracewheel.engines.vllm_remote import shared_servers
    from tracewheel.engines.vllm_settings import VllmSettings

    profile = profile_of(config)
    return shared_servers(base, VllmSettings.of(profile), profile.rollout.engine)


@pytest.fixture(scope="module")
def engine_of(servers):
    from tracewheel.engines.vllm_remote import VllmServerEngine

    return lambda policy, sampling=HOT: VllmServerEngine(lambda base: servers, policy, SELDOM, sampling)


def prompts(count, seed=4):
    rng = random.Random(seed)
    return {n: [rng.randrange(400) for _ in range(20 + rng.randrange(40))] for n in range(count)}


def finish(engine, count):
    turns = {}
    while len(turns) < count:
        turns |= {generation.session: generation for generation in engine.step()}
    return turns


def speak(engine, openings, budget=40, policies=None):
    for n, ids in openings.items():
        engine.submit(Request(n, list(ids), budget, seed=n, policy=(policies or {}).get(n)))


def worst_difference(versions, opening, generation):
    ids = opening + generation.token_ids
    fresh = {version: versions.logprobs(version, ids, HOT.temperature) for version in set(generation.versions)}
    pairs = zip(generation.logprobs, generation.versions, strict=True)
    return max(abs(found - fresh[version][len(opening) - 1 + t]) for t, (found, version) in enumerate(pairs))


def workspace_rollout(config, engine_config, policy, on_episode=None):
    rng = random.Random(8)
    tasks = [make_task(family, tier, rng) for family in FAMILIES for tier in (1, 2, 3)]
    engine, renderer = make_engine(engine_config, policy, greedy=False, slots=64)
    progress = (lambda done, total: on_episode(done)) if on_episode else None
    return run_episodes(engine, renderer, config.rollout, tasks, samples=2, seed=1, progress=progress)


def test_a_rollout_whose_server_is_killed_says_what_the_transformers_engine_says(config, servers, versions):
    """The server is killed twice in the middle; every trajectory is there once, with every token."""
    starts, kills = servers.own.starts, []

    def kill(done):
        if done in (3, 12):
            kills.append(servers.own.process_id())
            os.kill(servers.own.process_id(), signal.SIGKILL)

    policy = versions.policy(1)
    expected = workspace_rollout(config, config, policy)
    found = workspace_rollout(config, profile_of(config), policy, kill)
    assert len(set(kills)) == 2
    assert servers.own.starts == starts + 2
    assert [each.token_ids for each in found] == [each.token_ids for each in expected]
    pairs = [
        (a, b) for one, other in zip(found, expected, strict=True) for a, b in zip(one.logprobs, other.logprobs, strict=True)
    ]
    worst = max(abs(a - b) for a, b in pairs)
    assert worst < 1e-4


def test_new_weights_in_the_middle_of_a_turn(engine_of, versions):
    engine, openings = engine_of(versions.policy(1)), prompts(12)
    speak(engine, openings, budget=200)
    turns = {}
    for version in (2, 3):
        time.sleep(0.5)
        turns |= {generation.session: generation for generation in engine.step()}
        engine.update_weights(versions.policy(version))
    turns |= finish(engine, len(openings) - len(turns))
    assert engine.idle
    assert sum(len(set(turn.versions)) > 1 for turn in turns.values()) >= 4
    for n, turn in turns.items():
        assert turn.versions == sorted(turn.versions)
        assert len(turn.token_ids) == len(turn.versions)
        assert len(turn.token_ids) == 200 or turn.ended_by == "stop"
        assert worst_difference(versions, openings[n], turn) < 1e-4


def test_champion_and_challenger_together_say_what_each_says_alone(engine_of, versions):
    champion, challenger = versions.policy(1), versions.policy(2)
    openings, greedy = prompts(12), Sampling(greedy=True)
    alone = {}
    for policy, half in ((champion, 0), (challenger, 1)):
        engine = engine_of(policy, greedy)
        speak(engine, {n: ids for n, ids in openings.items() if n % 2 == half})
        alone |= finish(engine, 6)
    engine = engine_of(champion, greedy)
    speak(engine, openings, policies={n: challenger for n in openings if n % 2})
    together = finish(engine, 12)
    assert {n: turn.token_ids for n, turn in together.items()} == {n: turn.token_ids for n, turn in alone.items()}
    assert {n: set(turn.versions) for n, turn in together.items()} == {n: {n % 2 + 1} for n in openings}


def test_the_base_beside_an_adapter_says_what_it_says_alone(engine_of, base, versions):
    bare, openings, greedy = PolicyRef(base), prompts(8), Sampling(greedy=True)
    for version in (1, 2, 3, 4):
        engine_of(versions.policy(version))
    engine = engine_of(bare, greedy)
    speak(engine, openings)
    alone = finish(engine, 8)
    engine = engine_of(versions.policy(4), greedy)
    speak(engine, openings, policies={n: bare for n in openings if n % 2})
    together = finish(engine, 8)
    assert all(together[n].token_ids == alone[n].token_ids for n in openings if n % 2)
    assert any(together[n].token_ids != alone[n].token_ids for n in openings if n % 2 == 0)


def test_many_versions_one_after_another_none_stale(engine_of, versions):
    engine, openings = engine_of(versions.policy(1)), prompts(3)
    for version in range(2, 9):
        engine.update_weights(versions.policy(version))
        speak(engine, {10 * version + n: ids for n, ids in openings.items()}, budget=16)
        for n, turn in finish(engine, 3).items():
            assert set(turn.versions) == {version}
            assert worst_difference(versions, openings[n % 10], turn) < 1e-4
            engine.close(n)


def test_exchanged_files_are_noticed(engine_of, versions, tmp_path):
    one, other = versions.policy(1), versions.policy(2)
    folder = tmp_path / "adapter"
    shutil.copytree(one.adapter, folder)
    shutil.copyfile(f"{other.adapter}/adapter_model.safetensors", folder / "adapter_model.safetensors")
    engine = engine_of(one)
    with pytest.raises(AdapterMismatchError, match="does not serve the weights"):
        engine.update_weights(PolicyRef(one.base, str(folder), 5))
    speak(engine, prompts(1))
    assert worst_difference(versions, prompts(1)[0], finish(engine, 1)[0]) < 1e-4


def test_a_running_server_is_used_by_its_address(config, servers, versions, engine_of):
    """Another process's server, as far as this engine can tell."""
    from tracewheel.engines.vllm_remote import VllmServerEngine, VllmServers
    from tracewheel.engines.vllm_settings import VllmSettings

    profile = profile_of(config, servers=(servers.own.url + "/v1",))
    others = VllmServers(versions.policy(1).base, VllmSettings.of(profile), profile.rollout.engine)
    said = []
    for engine in (engine_of(versions.policy(1)), VllmServerEngine(lambda base: others, versions.policy(1), SELDOM, HOT)):
        speak(engine, prompts(4))
        said.append({n: turn.token_ids for n, turn in finish(engine, 4).items()})
    assert said[0] == said[1]
    others.close()


def test_a_server_that_is_not_there_is_an_error_in_time(config, base):
    address = f"http://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(InfrastructureError, match="no answer for 2 s"):
        make_engine(profile_of(config, servers=(address,), patience=2), PolicyRef(base), greedy=False, slots=1)
    assert time.monotonic() - began < 30


def test_a_server_that_cannot_start_says_its_last_words(config, base):
    from tracewheel.engines.vllm_server import VllmServer
    from tracewheel.engines.vllm_settings import VllmSettings

    settings = VllmSettings.of(profile_of(config, kv_cache_gib=100_000))
    server = VllmServer(base, settings, patience=240)
    with pytest.raises(InfrastructureError, match=r"last words:(.|\n)*memory"):
        server.ensure()
    server.stop()


def test_a_server_without_our_draws_is_refused(config, base):
    """It answers, but chooses tokens by itself: one that speaks the protocol stands in for it."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Plain(BaseHTTPRequestHandler):
        def do_GET(self):
            self._say(b'{"data": [{"id": "x", "parent": null, "max_model_len": 4096}]}')

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self._say(
                b'{"choices": [{"token_ids": [7], "finish_reason": "length", "logprobs": {"content": [{"logprob": -1.5}]}}]}'
            )

        def _say(self, body):
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
        make_engine(profile_of(config, servers=(address,)), PolicyRef(base), greedy=False, slots=1)
    server.shutdown()
