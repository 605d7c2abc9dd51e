"""`tracewheel serve`: answers programs with the champion, and takes over a promotion; or with any policy, as a gateway."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from flows.commands.command import Command
from flows.console.arguments import note, profile_of, profile_options
from flows.console.stages import policy_in
from tracewheel.core import stopping
from tracewheel.core.errors import DataError, InputError, TracewheelError

if TYPE_CHECKING:
    from tasks.tracking.champion import Champion
    from tracewheel.config import RetrainConfig
    from tracewheel.environments import ServedPrompt
    from tracewheel.gateway.serving import ServingDoor
    from tracewheel.policy.adapters import PolicyRef

FOLDER, BASE = "serving", "base"
PORT, GATEWAY_PORT = 8788, 8700
LOOK_SECONDS, SHORTEST_KEY = 0.2, 16
MOST_TURNS = 1_000_000  # conversations with a gateway have no limit of turns; the door forgets them when they grow too long
CLOSING_SECONDS = 5.0  # for the conversations that are open: who stops a server waits for ten, and then kills it


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--host", default="127.0.0.1", metavar="NAME", help="where to listen (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help=f"default {PORT}, or {GATEWAY_PORT} with --gateway; 0 takes a free one")
    parser.add_argument("--key", help="what programs must show, at least 16 characters (default: one is made and printed)")
    parser.add_argument(
        "--log", metavar="DIR", help="where conversations are logged (default: serving/logs in the work folder)"
    )
    parser.add_argument(
        "--idle", type=float, default=600.0, metavar="S", help="a conversation ends after S silent seconds (600)"
    )
    parser.add_argument("--watch", type=float, default=10.0, metavar="S", help="look for a promotion every S seconds (10)")
    parser.add_argument("--challenger", metavar="DIR", help="a second policy: output of warm-start or an update, or an adapter")
    parser.add_argument("--share", type=float, default=0.1, help="the challenger's share of the conversations (0.1)")
    parser.add_argument("--live", action="store_true", help="send the challenger's replies; else it answers in the shadow")
    gateway = parser.add_argument_group("any policy behind the APIs of OpenAI, Anthropic and Gemini instead, without a log")
    gateway.add_argument("--gateway", action="store_true", help="serve the base, or --adapter, whatever the champion is")
    gateway.add_argument("--adapter", metavar="DIR", help="an adapter's folder, or a state's (default: the base alone)")


def run(options: argparse.Namespace) -> NoReturn:
    """Serve until a signal comes; conversations that are open then are logged as they are.

    Raises:
        Stopped: the signal has come.
        ConfigError: the profile cannot be served.
        DataError: the champion or the challenger cannot be read.
        AdapterMismatchError: the adapter was trained for another base.
        InputError: an option is wrong, or the port is taken.
        InfrastructureError: the engine has failed.
    """
    if options.key is not None and (len(options.key) < SHORTEST_KEY or not options.key.isascii()):
        raise InputError(f"--key: at least {SHORTEST_KEY} ASCII characters; without the option one is made")
    if not 0.0 <= options.share <= 1.0:
        raise InputError(f"--share {options.share:g}: from 0 to 1")
    if options.adapter and not options.gateway:
        raise InputError("--adapter: only with --gateway; the champion is served without")
    config = profile_of(options, "policy.base")
    key = options.key or f"tw-{secrets.token_urlsafe(24)}"
    if options.port is None:
        options.port = GATEWAY_PORT if options.gateway else PORT
    if options.gateway:
        _serve_gateway(config, options, key)
    _serve_champion(config, options, key)


def _serve_gateway(config: RetrainConfig, options: argparse.Namespace, key: str) -> NoReturn:
    from tracewheel.config import EngineSections
    from tracewheel.engines.making import make_engine
    from tracewheel.gateway.dialects.dialect import DIALECTS
    from tracewheel.gateway.engine_thread import EngineThread
    from tracewheel.gateway.gateway import CONVERSATIONS, Gateway, StandingDoor
    from tracewheel.gateway.server import GatewayServer

    policy = policy_in(config, options.adapter, "--adapter")
    caps = config.rollout.model_copy(update={"max_turns": MOST_TURNS, "harness": None})
    with contextlib.ExitStack() as made:
        engine, renderer = make_engine(EngineSections.of(config), policy, greedy=False, slots=CONVERSATIONS)
        thread = EngineThread(engine)
        made.callback(thread.close)
        door = StandingDoor(Gateway(thread, renderer, caps), key, config.seed)
        server = made.enter_context(GatewayServer(door, options.host, options.port))
        note(f"OPENAI_BASE_URL={server.openai_url()}\nOPENAI_API_KEY={key}")
        if "gemini" in DIALECTS:
            note(f"GOOGLE_GEMINI_BASE_URL={server.url()}\nGEMINI_API_KEY={key}")
        if "anthropic" in DIALECTS:
            note(f"ANTHROPIC_BASE_URL={server.url()}\nANTHROPIC_API_KEY={key}")
        try:
            while True:
                thread.check()
                time.sleep(LOOK_SECONDS)
        except stopping.Stopped as stop:
            raise stopping.Stopped(stop.request, "the gateway has stopped") from None


def _serve_champion(config: RetrainConfig, options: argparse.Namespace, key: str) -> NoReturn:
    from tracewheel.gateway.conversation_log import SERVED_FOLDER, ConversationLog, LogRedaction
    from tracewheel.gateway.server import GatewayServer
    from tracewheel.gateway.serving import Challenger, ServingDoor
    from tracewheel.gateway.serving_routes import serving_routes
    from tracewheel.traces.forgotten import read_forgotten

    folder = Path(options.log or Path(config.work_dir) / SERVED_FOLDER)
    champions = Champions(config)
    champion, policy, name = champions.now()
    served, renderer = _served(config, policy, name)

    def forgotten(user: str | None, session: str | None) -> bool:
        with contextlib.suppress(DataError):  # a damaged list stops the next ingest, and no server
            return read_forgotten(config.work_dir).covers_named(user=user, session=session)
        return False

    log = ConversationLog(folder, forgotten=forgotten)
    redaction = LogRedaction(config.ingest.redaction, renderer)
    door = ServingDoor(served, renderer, config.rollout, log, frozenset([key]), redaction, champions.prompt(champion))
    engines = [served.engine]
    if options.challenger:
        rival = policy_in(config, options.challenger, "--challenger")
        other, _ = _served(config, rival, options.challenger)
        engines.append(other.engine)
        shadows = None if options.live else ConversationLog(folder / "shadow", "replies", forgotten=forgotten)
        door.challenger = Challenger(other, options.share, options.live, shadows)
    try:
        with GatewayServer(door, options.host, options.port, routes=serving_routes(door)) as server:
            note(f"Serving {name} at {server.openai_url()}, key {key}, logs in {folder}")
            _watch(door, champions, champion, options)
    finally:  # the server is gone: nothing is answered any more
        lost = door.end_idle(0.0, CLOSING_SECONDS)
        log.close()
        for engine in engines:
            engine.close()
        note(f"{door.answered} turns answered, {door.logged} conversations logged in {folder}")
        if lost:
            note(f"{lost} conversations were still open and are not logged: redacting them takes too long")


def _watch(door: ServingDoor, champions: Champions, champion: Champion | None, options: argparse.Namespace) -> NoReturn:
    """Take over promotions and log conversations that have ended, until a signal comes."""
    looked = time.monotonic()
    with stopping.stoppable():
        while True:
            try:
                stopping.check()
            except stopping.Stopped as stop:
                raise stopping.Stopped(stop.request, "serving has stopped") from None
            time.sleep(LOOK_SECONDS)
            door.end_idle(options.idle)
            if time.monotonic() < looked + options.watch:
                continue
            try:
                found = champions.look()
                if found is not None and found != champion:
                    champion = found  # a bad one is tried once
                    policy, name = champions.fetch(found)
                    door.take_over(policy, name, champions.prompt(found))
                    note(f"tracewheel: serving {name}")
            except (TracewheelError, OSError) as error:
                note(f"tracewheel: {door.health()['policy']} goes on: {error}")
            looked = time.monotonic()


class Champions:
    """The registry's champions, as policies on this machine.

    Args:
        config: The profile.
    """

    def __init__(self, config: RetrainConfig) -> None:
        self._config = config
        self._folder = Path(config.work_dir) / FOLDER

    def look(self) -> Champion | None:
        """The champion for the profile's base, None without one."""
        from tasks.tracking.registry import find_champion

        return find_champion(self._config)[0]

    def now(self) -> tuple[Champion | None, PolicyRef, str]:
        """The champion with its policy and name; the base where there is none."""
        from tracewheel.policy.adapters import PolicyRef

        champion = self.look()
        if champion is None:
            return None, PolicyRef(self._config.policy.base), BASE
        return champion, *self.fetch(champion)

    def prompt(self, champion: Champion | None) -> ServedPrompt | None:
        """What is done to programs' requests: what the champion was promoted with, else the profile's environment says.

        Raises:
            ConfigError: the profile lacks what the champion was promoted with.
        """
        from flows.wheel_stages import served_with

        return served_with(self._config, champion.run_id if champion else "")

    def fetch(self, champion: Champion) -> tuple[PolicyRef, str]:
        """A champion's policy, under the version of the registry, and its name, which holds the digest of its weights.

        Raises:
            InfrastructureError: the registry's files are not those that were registered.
            WeightsError: they cannot be loaded.
        """
        from tasks.tracking.champion import DIGITS, weights_of
        from tasks.tracking.promotion import WAITING
        from tasks.tracking.registry import fetch_registered
        from tracewheel.core.fingerprint import digest_of
        from tracewheel.policy.adapters import PolicyRef, policy_of

        tracking = self._config.tracking
        own = self._folder / champion.digest[:DIGITS]
        weights = next((each for each in own.glob("*") if digest_of(each) == champion.digest), None)
        weights = weights or weights_of(self._config.work_dir, champion.digest)
        if weights is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._folder, prefix=".") as partial:
                found = fetch_registered(tracking.uri, tracking.model_name, champion.version, None, Path(partial))
                own.mkdir(exist_ok=True)
                weights = found.rename(own / found.name)
        policy = policy_of(weights, self._config.policy.base)
        version = policy.version if champion.version == WAITING else int(champion.version)
        name = f"{tracking.model_name}:{champion.version}@{champion.digest[:DIGITS]}"
        return PolicyRef(policy.base, policy.adapter, version), name


def _served(config: RetrainConfig, policy: PolicyRef, name: str) -> Any:
    """An engine in a thread of its own that serves a policy, and its renderer."""
    from tracewheel.config import EngineSections
    from tracewheel.engines.making import make_engine
    from tracewheel.gateway.engine_thread import EngineThread
    from tracewheel.gateway.serving import Served

    engine, renderer = make_engine(EngineSections.of(config), policy, greedy=False, slots=config.rollout.engine.slots)
    return Served(EngineThread(engine), name), renderer


COMMAND = Command("serve", "answer programs with the champion, and log what is said; or with any policy", add_options, run)
