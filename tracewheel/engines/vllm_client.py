"""One vLLM server over HTTP: turns by token ids, adapters by version, and patience with a server that dies."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.engines.adapter_files import AdapterFiles
from tracewheel.engines.draws import Draws
from tracewheel.engines.vllm_server import VllmServer
from tracewheel.engines.vllm_settings import VllmSettings
from tracewheel.policy.probe import compare, read_probe

T = TypeVar("T")
GENERATE, ABORT = "/inference/v1/generate", "/inference/v1/abort_requests"
NAMED = "generate-tokens-"  # what the server puts before a request's name
AGAIN_AFTER = 0.5
SHOWN = 300


@dataclass(frozen=True)
class Said:
    """What came back for a request. `stopped_short` where it was aborted: there may be more to say."""

    token_ids: list[int]
    logprobs: list[float]
    stopped_short: bool


class _Gone(Exception):
    """The server did not answer, or not with sense."""


class VllmClient:
    """Requests to one server, from one event loop.

    Args:
        url: Its address.
        settings: What the engine needs of it.
        patience: How many seconds a request is tried again when the server does not answer.
        server: The process behind the address, where it was started here.
    """

    def __init__(self, url: str, settings: VllmSettings, patience: float, server: VllmServer | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._settings = settings
        self._patience = patience
        self._server = server
        self._client = httpx.AsyncClient(
            base_url=self.url, timeout=httpx.Timeout(patience, connect=5.0), limits=httpx.Limits(max_connections=None)
        )
        self._base: str | None = None
        self._loaded: OrderedDict[AdapterFiles, int] = OrderedDict()  # with how many requests use it; the longest unused first
        self._life = 0
        self._changing = asyncio.Lock()
        self._reviving = asyncio.Lock()

    async def _connect(self) -> str:
        """Find out what the server's base is called, and whether it draws as Tracewheel asks for."""
        models = (await self._once("GET", "/v1/models"))["data"]
        base = next(model for model in models if model.get("parent") is None)
        longest = base.get("max_model_len") or self._settings.longest
        if longest < self._settings.longest:
            raise ConfigError(
                f"{self.url}: serves conversations of at most {longest} tokens, and {self._settings.longest} are needed: "
                f"start it with --max-model-len={self._settings.longest}"
            )
        name = str(base["id"])
        heard = [await self._generate([0], Draws(temperature=t, forced=(1,)), 1, None, name, "") for t in (0.5, 2.0)]
        if any(said.token_ids != [1] for said in heard) or heard[0].logprobs == heard[1].logprobs:
            raise ConfigError(
                f"{self.url}: does not choose tokens as asked for: start it with "
                "--logits-processors=tracewheel.engines.vllm_draws:SessionDraws --logprobs-mode=processed_logits"
            )
        return name

    async def generate(
        self, ids: list[int], draws: Draws, max_tokens: int, stop_id: int | None, adapter: AdapterFiles | None, name: str
    ) -> Said:
        """Up to `max_tokens` after `ids`: all that was said, or an exception. A server that died is asked again.

        Raises:
            AdapterMismatchError: the server does not serve the adapter's weights.
            ConfigError: it was started with other settings than the engine needs.
            InfrastructureError: it does not come back, or refuses the request.
        """
        return await self._patiently(adapter, lambda model: self._generate(ids, draws, max_tokens, stop_id, model, name))

    async def load(self, adapter: AdapterFiles | None) -> None:
        """Bring an adapter in, and check that it is served; raises as `generate` does."""

        async def nothing(_: str) -> None:
            return

        await self._patiently(adapter, nothing)

    async def _patiently(self, adapter: AdapterFiles | None, work: Callable[[str], Awaitable[T]]) -> T:
        """Do something with an adapter, by the server's name for it, as often as the server goes meanwhile."""
        since: float | None = None
        while True:
            life = self._life
            try:
                model = await self._use(adapter)
                life = self._life
                try:
                    return await work(model)
                finally:
                    if adapter is not None and self._life == life:
                        self._loaded[adapter] -= 1
            except _Gone as error:
                since = since or time.monotonic()
                await self._revive(life, since, error)

    async def abort(self, names: list[str]) -> None:
        """Stop requests; they come back with what they have said so far."""
        try:
            await self._once("POST", ABORT, {"request_ids": [NAMED + name for name in names]})
        except _Gone:
            return  # so they are gone too, and will be asked for again

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _generate(
        self, ids: list[int], draws: Draws, max_tokens: int, stop_id: int | None, model: str, name: str
    ) -> Said:
        parameters = {
            "temperature": 0.0,
            "max_tokens": max_tokens,
            "logprobs": 0,
            "stop_token_ids": [] if stop_id is None else [stop_id],
            "ignore_eos": True,
            "detokenize": False,
            "extra_args": draws.extra_args(),
        }
        body = {"model": model, "token_ids": ids, "sampling_params": parameters} | ({"request_id": name} if name else {})
        answer = await self._once("POST", GENERATE, body)
        try:
            choice = answer["choices"][0]
            token_ids = [int(token) for token in choice["token_ids"] or []]
            logprobs = [float(entry["logprob"]) for entry in (choice["logprobs"] or {}).get("content") or []]
            reason = choice["finish_reason"]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise _Gone(f"an answer without sense ({error})") from error
        if len(token_ids) != len(logprobs):
            raise _Gone(f"{len(token_ids)} tokens with {len(logprobs)} log-probabilities")
        if reason not in ("stop", "length", "abort"):
            raise _Gone(f"a turn that ended by {reason}")
        return Said(token_ids, logprobs, reason == "abort")

    async def _use(self, adapter: AdapterFiles | None) -> str:
        """The name under which the server has an adapter, loaded and checked; it stays until it is released."""
        async with self._changing:
            if self._base is None:
                self._base = await self._connect()
            if adapter is None:
                return self._base
            if adapter not in self._loaded:
                await self._bring_in(adapter)
            self._loaded[adapter] += 1
            self._loaded.move_to_end(adapter)
        return adapter.digest

    async def _bring_in(self, adapter: AdapterFiles) -> None:
        adapter.check(self._settings.max_rank)
        unused = [each for each, users in self._loaded.items() if users <= 0]
        for each in unused[: max(0, len(self._loaded) - self._settings.max_loras + 1)]:
            del self._loaded[each]
            await self._once("POST", "/v1/unload_lora_adapter", {"lora_name": each.digest}, refused_is_fine=True)
        # In place, so that a server which was not told to forget it reads it again.
        body = {"lora_name": adapter.digest, "lora_path": adapter.folder, "load_inplace": True}
        await self._once("POST", "/v1/load_lora_adapter", body)
        self._loaded[adapter] = 0

        try:
            if probe := read_probe(adapter.folder):
                draws, count = Draws(forced=tuple(probe.token_ids[1:])), len(probe.logprobs)
                said = await self._generate(probe.token_ids[:1], draws, count, None, adapter.digest, "")
                compare(adapter.folder, said.logprobs, probe, self._settings.dtype)
        except BaseException:
            self._loaded.pop(adapter, None)
            raise

    async def _once(self, method: str, path: str, body: Any = None, refused_is_fine: bool = False) -> Any:
        try:
            response = await self._client.request(method, path, json=body)
        except httpx.TransportError as error:
            raise _Gone(f"{type(error).__name__}: {error}") from error
        if response.is_success:
            try:
                return response.json() if response.headers.get("content-type", "").startswith("application/json") else None
            except ValueError as error:
                raise _Gone(f"an answer without sense ({error})") from error
        said = f"{path}: status {response.status_code}: {' '.join(response.text.split())[:SHOWN]}"
        # A server that was started anew knows no adapter.
        if response.status_code >= 500 or (response.status_code == 404 and path == GENERATE):
            raise _Gone(said)
        if refused_is_fine:
            return None
        hint = "; is VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment?" if response.status_code == 404 else ""
        raise InfrastructureError(f"{self.url}{said}{hint}")

    async def _revive(self, life: int, since: float, error: _Gone) -> None:
        """Wait a little, and start the server if it is ours and gone; what it had is to be loaded anew.

        Many requests notice that a server is gone; the first of them ends its `life`.
        """
        if self._life == life:
            self._life += 1
            self._loaded = OrderedDict()
            self._base = None
        if time.monotonic() - since > self._patience:
            raise InfrastructureError(
                f"{self.url}: no answer for {self._patience:.0f} s (rollout.engine.patience); the last: {error}"
            ) from error
        await asyncio.sleep(AGAIN_AFTER)
        async with self._reviving:
            if self._server is not None:
                await asyncio.to_thread(self._server.ensure)
