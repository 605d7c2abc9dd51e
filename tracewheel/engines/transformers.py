"""Generation with Hugging Face transformers: continuous batching over a ragged key-value cache.

Sessions hold a slot from their first turn to `close`; a slot that is given back goes to the next
session in the queue at once. A step is either one pass over the rows that have new text to read, or
one pass that adds a token to every row that is speaking. Nothing is ever computed twice for a
session. Random numbers belong to the session, not to the batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from tracewheel.adapters import PolicyRef
from tracewheel.engines.base import Generation, Request, Sampling
from tracewheel.engines.model_check import refuse_unlike_models
from tracewheel.engines.ragged_cache import RaggedCache

READ_SHARE = 0.25
RANDOM_BLOCK = 256


@dataclass
class _Session:
    number: int
    slot: int
    random: np.random.Generator
    temperature: float
    uniforms: list[float] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    budget: int = 0

    def next_uniform(self) -> float:
        if not self.uniforms:
            self.uniforms = self.random.random(RANDOM_BLOCK).tolist()
        return self.uniforms.pop()


class TransformersEngine:
    """An `Engine` over a causal language model of transformers.

    Args:
        model: The policy, in evaluation mode.
        stop_id: The token that ends a turn; it belongs to the turn.
        sampling: How tokens are chosen.
        slots: Sessions that are open at once; further ones wait.
        policy_version: The version of the policy's weights.
        longest: The longest conversation there will be, in tokens; None when that is not known.
        load: Loads another policy's model, for `update_weights`.

    Raises:
        InputError: the engine would sample from another distribution than the model's own.
    """

    def __init__(
        self,
        model: Any,
        stop_id: int,
        sampling: Sampling,
        slots: int,
        policy_version: int = 0,
        longest: int | None = None,
        load: Callable[[PolicyRef], Any] | None = None,
    ) -> None:
        self.policy_version = policy_version
        self._model = model
        self._load = load
        self._stop_id = stop_id
        self._sampling = sampling
        self._cache = RaggedCache(model.config.num_hidden_layers, slots)
        self._free = list(range(slots))[::-1]
        self._waiting: deque[Request] = deque()
        self._sessions: dict[int, _Session] = {}
        self._reading: list[_Session] = []
        self._speaking: list[_Session] = []
        with torch.inference_mode():
            refuse_unlike_models(model, self._probe, longest)

    def submit(self, request: Request) -> None:
        session = self._sessions.get(request.session)
        if session is None:
            self._waiting.append(request)
        else:
            self._begin_turn(session, request)

    @property
    def idle(self) -> bool:
        return not (self._reading or self._speaking or (self._waiting and self._free))

    @torch.inference_mode()
    def update_weights(self, policy: PolicyRef) -> None:
        """As the protocol says. Open sessions are read again, so that all they say next is the new policy's."""
        if self._load is None:
            raise ValueError("this engine was made from a model, and does not know how to load another")
        self._model, self.policy_version = self._load(policy), policy.version
        self._cache.lengths[:] = 0
        for session in self._sessions.values():
            session.unread = list(session.ids)
        self._reading += self._speaking
        self._speaking = []

    def close(self, session: int) -> None:
        self._free.append(self._sessions.pop(session).slot)

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        while self._waiting and self._free:
            self._open(self._waiting.popleft())
        if self._reading and len(self._reading) >= READ_SHARE * len(self._speaking):
            spoke, self._reading = self._reading, []
        else:
            spoke, self._speaking = self._speaking, []
        if not spoke:
            return []
        logits = self._forward(spoke)
        tokens, logprobs = self._sample(logits, spoke)
        ended = []
        for session, token, logprob in zip(spoke, tokens, logprobs, strict=True):
            session.sampled.append(token)
            session.logprobs.append(logprob)
            session.versions.append(self.policy_version)
            session.unread.append(token)
            session.ids.append(token)
            if token == self._stop_id or len(session.sampled) == session.budget:
                ended_by: Literal["stop", "length"] = "stop" if token == self._stop_id else "length"
                ended.append(Generation(session.number, session.sampled, session.logprobs, ended_by, session.versions))
            else:
                self._speaking.append(session)
        return ended

    def _open(self, request: Request) -> None:
        temperature = self._sampling.temperature if request.temperature is None else request.temperature
        session = _Session(request.session, self._free.pop(), np.random.default_rng(request.seed), temperature)
        self._cache.lengths[session.slot] = 0
        self._sessions[request.session] = session
        self._begin_turn(session, request)

    def _begin_turn(self, session: _Session, request: Request) -> None:
        session.unread.extend(request.new_ids)
        session.ids.extend(request.new_ids)
        session.sampled, session.logprobs, session.versions = [], [], []
        session.budget = request.max_new_tokens
        self._reading.append(session)

    def _forward(self, sessions: list[_Session]) -> torch.Tensor:
        """Read each session's unread ids. Returns the logits [R, V] behind the last of them."""
        sessions.sort(key=lambda session: session.slot)
        rows = torch.tensor([session.slot for session in sessions])
        counts = torch.tensor([len(session.unread) for session in sessions])
        width = int(counts.max())
        ids = torch.tensor([session.unread + [0] * (width - len(session.unread)) for session in sessions])
        logits = self._read(self._cache, rows, ids, counts)
        for session in sessions:
            session.unread = []
        return logits

    def _read(self, cache: RaggedCache, rows: torch.Tensor, ids: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Read `ids` [R, W], the first `counts` [R] of each row. Returns the logits [R, V] behind the last of them."""
        positions, mask = cache.begin(rows, ids.shape[1])
        device = self._model.device
        hidden = self._model.base_model(
            input_ids=ids.to(device),
            position_ids=positions.to(device),
            attention_mask=mask.to(device),
            past_key_values=cache,
        ).last_hidden_state
        cache.lengths[rows] += counts
        last = hidden[torch.arange(len(rows)), counts - 1]
        return self._model.get_output_embeddings()(last).float().cpu()

    def _probe(self, ids: torch.Tensor) -> torch.Tensor:
        """The logits [V] behind the last of `ids` [T], read in two chunks in a cache of their own."""
        cache, row = RaggedCache(self._model.config.num_hidden_layers, 1), torch.tensor([0])
        for chunk in ids.tensor_split(2):
            logits = self._read(cache, row, chunk[None], torch.tensor([len(chunk)]))
        return logits[0]

    def _sample(self, logits: torch.Tensor, sessions: list[_Session]) -> tuple[list[int], list[float]]:
        """Choose a token a row from `logits` [R, V]; returns tokens and their log-probabilities."""
        temperatures = torch.tensor([[session.temperature] for session in sessions])
        logprobs = torch.log_softmax(logits / temperatures, dim=-1)
        if self._sampling.greedy:
            tokens = logits.argmax(dim=-1, keepdim=True)
        else:
            uniforms = torch.tensor([session.next_uniform() for session in sessions], dtype=torch.float64)
            tokens = _draw(logprobs, uniforms, self._sampling.top_p)
        return tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist()


def _draw(logprobs: torch.Tensor, uniforms: torch.Tensor, top_p: float) -> torch.Tensor:
    """Inverse-transform sampling from `logprobs` [R, V] with `uniforms` [R] in [0, 1); tokens [R, 1].

    Top-p (Holtzman et al. 2020) keeps the fewest most likely tokens that hold at least `top_p`.
    """
    probabilities = logprobs.double().exp()
    if top_p < 1.0:
        descending, order = probabilities.sort(dim=-1, descending=True, stable=True)
        before = descending.cumsum(dim=-1) - descending
        probabilities = torch.zeros_like(probabilities).scatter(1, order, descending * (before < top_p))
    mass = probabilities.cumsum(dim=-1)
    chosen = torch.searchsorted(mass, (uniforms * mass[:, -1])[:, None], right=True)
    return chosen.clamp(max=logprobs.shape[1] - 1)
