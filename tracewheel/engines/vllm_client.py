"""Requests to one vLLM server: turns by token ids, adapters by version, retries while a server is away."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.engines.draws import Draws
from tracewheel.engines.vllm_base import AdapterFiles, TurnRequest
from tracewheel.engines.vllm_server import VllmServer
from tracewheel.engines.vllm_settings import MAX_LORAS, VllmSettings
from tracewheel.policy.probe import compare_logprobs, is_rounding, read_probe

T = TypeVar("T")
GENERATE, ABORT = "/inference/v1/generate", "/inference/v1/abort_requests"
NAME_PREFIX = "generate-tokens-"  # what the server puts before a request's name
RETRY_SECONDS = 0.5
CONNECT_SECONDS = 5.0
CERTAIN = 1e-6
EXCERPT = 300  # characters of a server's message in ours


@dataclass(frozen=True)
class Output:
    """What a request generated. An `aborted` one may be incomplete."""

    token_ids: list[int]
    logprobs: list[float]
    aborted: bool


class _Unavailable(Exception):
    """The server did not answer, or its answer is invalid."""


class VllmClient:
    """Requests to one server, from one event loop.

    Args:
        url: Its address.
        settings: What the engine needs of it.
        patience: Seconds for which requests are retried while the server does not answer.
        server: The process behind the address, if it was started here.
    """

    def __init__(self, url: str, settings: VllmSettings, patience: float, server: VllmServer | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._settings = settings
        self._patience = patience
        self._server = server
        self._client = httpx.AsyncClient(
            base_url=self.url,
            timeout=httpx.Timeout(patience, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None),
        )
        self._base: str | None = None
        self._loaded: OrderedDict[AdapterFiles, int] = OrderedDict()  # with the number of requests; least recently used first
        self._restarts = 0
        self.away = False  # whether it did not answer when last asked
        self._returning: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._restarting = asyncio.Lock()

    async def generate(self, turn: TurnRequest, adapter: AdapterFiles | None, name: str) -> Output:
        """Sample a turn, again from its start if the server dies meanwhile.

        Raises:
            AdapterMismatchError: the server does not serve the adapter's weights.
            ConfigError: it was started with other settings than the engine needs.
            InfrastructureError: it does not come back, or refuses the request.
        """
        return await self._retrying(adapter, lambda model: self._generate(turn, model, name))

    async def try_to_generate(self, turn: TurnRequest, adapter: AdapterFiles | None, name: str) -> Output | None:
        """Like `generate`, but None at once if the server does not answer; it is then brought back in the background."""
        return await self._try(adapter, lambda model: self._generate(turn, model, name))

    async def try_to_load(self, adapter: AdapterFiles) -> bool:
        """Like `load`, but False at once if the server does not answer; it then loads the adapter when it is back."""

        async def loaded(_: str) -> bool:
            return True

        return bool(await self._try(adapter, loaded))

    async def sleep(self) -> None:
        """Have the server give its GPUs' memory back: weights move to main memory, cached keys and values are forgotten.

        Raises:
            InfrastructureError: it does not answer, cannot sleep, or stays awake.
        """
        await self._change("/sleep?level=1", asleep=True)

    async def wake(self) -> None:
        """Undo `sleep`; raises like it."""
        await self._change("/wake_up", asleep=False)

    async def _change(self, path: str, *, asleep: bool) -> None:
        try:
            await self._request("POST", path)
            found = (await self._request("GET", "/is_sleeping") or {}).get("is_sleeping")
        except _Unavailable as error:
            raise InfrastructureError(f"{self.url}: {error}") from error
        if found is not asleep:
            raise InfrastructureError(f"{self.url}{path}: the server is {'awake' if asleep else 'asleep'} afterwards")

    async def _try(self, adapter: AdapterFiles | None, work: Callable[[str], Awaitable[T]]) -> T | None:
        try:
            return await self._attempt(adapter, work)
        except _Unavailable as error:
            self.away = True
            if self._returning is None or self._returning.done():
                self._returning = asyncio.create_task(self._return(error))
            return None

    async def _return(self, error: _Unavailable) -> None:
        """Start the server if it is ours, or wait for it, up to the patience; then it takes turns again."""
        since = time.monotonic()
        while self.away and time.monotonic() - since < self._patience:
            try:
                await self._restart(since, error)
                await self._request("GET", "/v1/models")
                self.away = False
            except (_Unavailable, InfrastructureError):
                continue

    async def load(self, adapter: AdapterFiles | None) -> None:
        """Load an adapter and check that it is served, even if it was loaded before; raises like `generate`."""
        resident = adapter in self._loaded

        async def check(_: str) -> None:
            if resident and adapter is not None:  # a new one is checked when it is loaded
                await self._check_served(adapter)

        await self._retrying(adapter, check)

    async def abort(self, names: list[str]) -> None:
        """Stop requests; they return what they have generated."""
        try:
            await self._request("POST", ABORT, {"request_ids": [NAME_PREFIX + name for name in names]})
        except _Unavailable:
            return  # the requests are gone with the server, and will be retried

    async def _retrying(self, adapter: AdapterFiles | None, work: Callable[[str], Awaitable[T]]) -> T:
        """Call `work` with the server's name for the adapter, until it succeeds or patience ends."""
        since: float | None = None
        while True:
            try:
                return await self._attempt(adapter, work)
            except _Unavailable as error:
                since = since or time.monotonic()
                await self._restart(since, error)

    async def _attempt(self, adapter: AdapterFiles | None, work: Callable[[str], Awaitable[T]]) -> T:
        restarts = self._restarts
        try:
            model = await self._acquire(adapter)
            restarts = self._restarts
            try:
                return await work(model)
            finally:
                if adapter is not None and self._restarts == restarts:
                    self._loaded[adapter] -= 1
        except _Unavailable:
            if self._restarts == restarts:  # many requests notice that a server is gone; the first of them counts it
                self._restarts += 1
                self._loaded = OrderedDict()
                self._base = None
            raise

    async def _connect(self) -> str:
        """The name of the server's base, after checking that it samples with Tracewheel's random numbers."""
        models = (await self._request("GET", "/v1/models"))["data"]
        base = next(model for model in models if model.get("parent") is None)
        longest = base.get("max_model_len") or self._settings.longest
        if longest < self._settings.longest:
            raise ConfigError(
                f"{self.url}: serves conversations of at most {longest} tokens, but {self._settings.longest} are needed: "
                f"start it with --max-model-len={self._settings.longest}"
            )
        name = str(base["id"])
        if self._settings.draws == "engine":
            # The only token that is allowed has the probability 1 among those that are sampled from, and less among all.
            only = await self._generate(TurnRequest([0], Draws(), 1), name, "", {"allowed_token_ids": [1]})
            if only.token_ids != [1] or abs(only.logprobs[0]) > CERTAIN:
                raise ConfigError(
                    f"{self.url}: does not report the log-probabilities that it samples by: start it with "
                    "--logprobs-mode=processed_logprobs and no logits processors"
                )
            return name
        turns = [TurnRequest([0], Draws(temperature=temperature, forced=(1,)), 1) for temperature in (0.5, 2.0)]
        found = [await self._generate(turn, name, "") for turn in turns]
        if any(output.token_ids != [1] for output in found) or found[0].logprobs == found[1].logprobs:
            raise ConfigError(
                f"{self.url}: does not sample with Tracewheel's logits processor: start it with "
                "--logits-processors=tracewheel.engines.vllm_draws:SessionDraws --logprobs-mode=processed_logits"
            )
        return name

    async def _score(self, ids: list[int], model: str) -> list[float]:
        """The log-probabilities of all tokens but the first: as in any turn, or, where vLLM draws, as a prompt's."""
        if self._settings.draws == "ours":
            turn = TurnRequest(ids[:1], Draws(forced=tuple(ids[1:])), len(ids) - 1)
            return (await self._generate(turn, model, "")).logprobs
        answer = await self._ask(TurnRequest(ids, Draws(), 1), model, "", {"prompt_logprobs": 0})
        try:
            places = zip(ids[1:], answer["prompt_logprobs"][1:], strict=True)
            return [float(place[str(token)]["logprob"]) for token, place in places]
        except (KeyError, TypeError, ValueError) as error:
            raise _Unavailable(f"an invalid answer ({error})") from error

    async def _ask(self, turn: TurnRequest, model: str, name: str, more: dict[str, Any] | None = None) -> Any:
        parameters = turn.parameters(self._settings.draws) | (more or {})
        body = {"model": model, "token_ids": turn.ids, "sampling_params": parameters} | ({"request_id": name} if name else {})
        return await self._request("POST", GENERATE, body)

    async def _generate(self, turn: TurnRequest, model: str, name: str, more: dict[str, Any] | None = None) -> Output:
        answer = await self._ask(turn, model, name, more)
        try:
            choice = answer["choices"][0]
            token_ids = [int(token) for token in choice["token_ids"] or []]
            logprobs = [float(entry["logprob"]) for entry in (choice["logprobs"] or {}).get("content") or []]
            reason = choice["finish_reason"]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise _Unavailable(f"an invalid answer ({error})") from error
        if len(token_ids) != len(logprobs):
            raise _Unavailable(f"{len(token_ids)} tokens with {len(logprobs)} log-probabilities")
        if reason not in ("stop", "length", "abort"):
            raise _Unavailable(f"a turn that ended by {reason}")
        return Output(token_ids, logprobs, reason == "abort")

    async def _acquire(self, adapter: AdapterFiles | None) -> str:
        """The server's name for an adapter, loaded and checked; the adapter stays while its count is above 0."""
        async with self._changing:
            if self._base is None:
                self._base = await self._connect()
            if adapter is None:
                return self._base
            if adapter not in self._loaded:
                await self._load(adapter)
            self._loaded[adapter] += 1
            self._loaded.move_to_end(adapter)
        return adapter.digest

    async def _load(self, adapter: AdapterFiles) -> None:
        adapter.check(self._settings.max_rank)
        unused = [each for each, users in self._loaded.items() if users <= 0]
        for each in unused[: max(0, len(self._loaded) - MAX_LORAS + 1)]:
            del self._loaded[each]
            await self._request("POST", "/v1/unload_lora_adapter", {"lora_name": each.digest}, refusal_allowed=True)
        # In place: a server that still has an adapter of this name reads it again.
        body = {"lora_name": adapter.digest, "lora_path": adapter.folder, "load_inplace": True}
        await self._request("POST", "/v1/load_lora_adapter", body)
        self._loaded[adapter] = 0

        try:
            await self._check_served(adapter)
        except BaseException:
            self._loaded.pop(adapter, None)
            raise

    async def _check_served(self, adapter: AdapterFiles) -> None:
        """Compare the server's log-probabilities of the adapter's probe with the trainer's."""
        probe = read_probe(adapter.folder)
        if probe is None:
            return
        found = await self._score(probe.token_ids, adapter.digest)
        base = None
        if self._base is not None and not is_rounding(found, probe, self._settings.dtype):
            base = await self._score(probe.token_ids, self._base)  # to say what it serves instead
        compare_logprobs(adapter.folder, found, probe, self._settings.dtype, base)

    async def _request(self, method: str, path: str, body: Any = None, refusal_allowed: bool = False) -> Any:
        try:
            response = await self._client.request(method, path, json=body)
        except httpx.TransportError as error:
            raise _Unavailable(f"{type(error).__name__}: {error}") from error
        if response.is_success:
            try:
                return response.json() if response.headers.get("content-type", "").startswith("application/json") else None
            except ValueError as error:
                raise _Unavailable(f"an invalid answer ({error})") from error
        message = f"{path}: status {response.status_code}: {' '.join(response.text.split())[:EXCERPT]}"
        # A restarted server has no adapters.
        if response.status_code >= 500 or (response.status_code == 404 and path == GENERATE):
            raise _Unavailable(message)
        if refusal_allowed:
            return None
        needed = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True" if path.startswith("/v1") else "VLLM_SERVER_DEV_MODE=1"
        hint = f"; is {needed} in its environment?" if response.status_code == 404 else ""
        raise InfrastructureError(f"{self.url}{message}{hint}")

    async def _restart(self, since: float, error: _Unavailable) -> None:
        """Wait a little, and start the server if it is ours and gone; adapters are loaded again."""
        if time.monotonic() - since > self._patience:
            raise InfrastructureError(
                f"{self.url}: no answer for {self._patience:.0f} s (rollout.engine.patience); last error: {error}"
            ) from error
        await asyncio.sleep(RETRY_SECONDS)
        async with self._restarting:
            if self._server is not None:
                await asyncio.to_thread(self._server.ensure)
