"""The engines of each kind."""

import random
import time

import pytest

from tracewheel.config import PolicyConfig, RetrainConfig
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.making import make_engine
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.policy.loading import PolicyWeights

RARE_TOKEN = 431  # ends a turn in these tests; hot sampling draws it now and then
HOT = Sampling(temperature=2.0)


SETTINGS = {
    "transformers": {},
    "vllm": {"slots": 64, "kv_cache_gib": 0.25},
    "vllm_server": {"slots": 32, "kv_cache_gib": 0.25, "patience": 240},
}


class EngineKind:
    """Engines of one kind over the tests' profile. vLLM's are shared by all tests, with little memory for its cache."""

    def __init__(self, name, config):
        self.name = name
        self._config = config

    def profile(self, engine=None, **rollout):
        """The profile with settings of `rollout.engine` and of `rollout`."""
        settings = {"kind": self.name, **SETTINGS[self.name], **(engine or {})}
        limits = {name: getattr(self._config.rollout, name) for name in ("max_tokens", "max_turn_tokens")}
        return RetrainConfig.model_validate(self._config.model_dump() | {"rollout": {"engine": settings, **limits, **rollout}})

    def make(self, policy, *, greedy=False, slots=64, **rollout):
        """An engine and its renderer, as a run makes them."""
        return make_engine(self.profile(**rollout), policy, greedy=greedy, slots=slots)

    def engine(self, policy, sampling=HOT, servers=None, stop=RARE_TOKEN):
        """An engine whose turns end with the rare token, or others; over other servers than the shared one, if given."""
        if self.name == "transformers":
            from tracewheel.engines.transformers import TransformersEngine

            weights = PolicyWeights(PolicyConfig(base=policy.base))
            return TransformersEngine(weights.load, policy, stop, sampling, slots=32)
        if self.name == "vllm":
            from tracewheel.engines.vllm_core import VllmEngine

            return VllmEngine(self.core, policy, stop, sampling)
        from tracewheel.engines.vllm_remote import VllmServerEngine

        return VllmServerEngine(lambda base: servers or self.servers(base), policy, stop, sampling)

    def core(self, base):
        """The process's own vLLM."""
        from tracewheel.engines.vllm_core import shared_core
        from tracewheel.engines.vllm_settings import VllmSettings

        return shared_core(base, VllmSettings.of(self.profile()))

    def servers(self, base):
        """The server, started here."""
        from tracewheel.engines.vllm_remote import shared_servers
        from tracewheel.engines.vllm_settings import VllmSettings

        profile = self.profile()
        return shared_servers(base, VllmSettings.of(profile), profile.rollout.engine)

    @staticmethod
    def openings(count):
        """Prompts by session."""
        rng = random.Random(4)
        return {n: [rng.randrange(400) for _ in range(20 + rng.randrange(40))] for n in range(count)}

    @staticmethod
    def submit(engine, openings, budget=40, policies=None):
        """Request the first turn of each session."""
        for n, ids in openings.items():
            engine.submit(Request(n, list(ids), budget, seed=n, policy=(policies or {}).get(n)))

    def advance(self, engine):
        """Let turns get into their middle; those that ended, by session. A server generates by itself meanwhile."""
        if self.name == "vllm_server":
            time.sleep(0.5)
        steps = 1 if self.name == "vllm_server" else 15
        return {generation.session: generation for _ in range(steps) for generation in engine.step()}

    @staticmethod
    def finish(engine, count):
        """The turns of so many sessions, by session."""
        turns = {}
        while len(turns) < count:
            turns |= {generation.session: generation for generation in engine.step()}
        return turns


@pytest.fixture(scope="session")
def kind_of(config):
    return lambda name: EngineKind(name, config)


@pytest.fixture(scope="session")
def some_tasks():
    """One task of each family and tier."""
    rng = random.Random(8)
    return [make_task(family, tier, rng) for family in FAMILIES for tier in (1, 2, 3, 4)]
