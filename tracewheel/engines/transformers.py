"""Generation with Hugging Face transformers: continuous batching over a ragged key-value cache.

Each step is one forward pass: every generating session gets a token, and sessions with new ids read them in the same
pass. Nothing is computed twice for a session, and equal prompts that arrive together are computed once. Random numbers
belong to the session, not to the batch.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from tracewheel.core.errors import ConfigError
from tracewheel.engines.base import Generation, Request, Sampling, as_stop_ids
from tracewheel.engines.lean_decoder import LeanDecoder
from tracewheel.engines.model_check import check_model
from tracewheel.engines.products import OutputLogits
from tracewheel.engines.ragged_attention import use_ragged_attention
from tracewheel.engines.ragged_cache import RaggedCache
from tracewheel.engines.ragged_session import RaggedSession
from tracewheel.engines.token_distribution import TokenDistribution
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.probe import PROBE, check_probe

ROWS_PER_SLOT = 4  # sessions whose keys and values are kept, waiting ones included, for each that may be in a pass
READ_CHUNK = 1024  # tokens of one session read in one pass: bounds the attention mask
READ_TOKENS = 8192  # tokens read in one pass, approximately: bounds its memory
SPARSE = 0.8  # a pass over a smaller share of the rows up to its last first moves its sessions together


class TransformersEngine:
    """An `Engine` over a causal language model of transformers.

    A session takes one of the `slots` from its request until its turn ends; while it waits for its tool it keeps only
    its row of keys and values. Sessions that come back go before new ones. Rows are made as needed, up to
    `ROWS_PER_SLOT` times the slots; a further session begins when another is closed.

    Args:
        model_of: The model of a policy, in evaluation mode.
        policy: The policy to begin with.
        stop_ids: The tokens that end a turn; whichever does belongs to the turn. A single one may be given as a number.
        sampling: How tokens are chosen.
        slots: The most sessions in one pass.
        longest: The longest conversation in tokens; None if unknown.

    Raises:
        AdapterMismatchError: the model is not the policy whose probe lies beside its weights.
        InputError: the engine would sample from another distribution than the model's own.
    """

    def __init__(
        self,
        model_of: Callable[[PolicyRef], Any],
        policy: PolicyRef,
        stop_ids: int | Iterable[int],
        sampling: Sampling,
        slots: int,
        longest: int | None = None,
    ) -> None:
        self._model_of = model_of
        self._policy, self.policy_version = policy, policy.version
        self._stop_ids = as_stop_ids(stop_ids)
        self._sampling = sampling
        self._slots = slots
        self._new: deque[Request] = deque()
        self._back: deque[RaggedSession] = deque()
        self._same_prompt: dict[int, list[RaggedSession]] = {}  # by the session that reads it for them
        self._sessions: dict[int, RaggedSession] = {}
        self._reading: list[RaggedSession] = []
        self._generating: list[RaggedSession] = []
        self._take_model(model_of(policy))
        self._cache = RaggedCache(self._model, longest)
        with torch.inference_mode():
            check_model(self._model, self._probe, longest)
        self._check_served(policy)

    def submit(self, request: Request) -> None:
        """Queue a turn.

        Raises:
            ConfigError: the request names another policy than the engine's.
        """
        session = self._sessions.get(request.session)
        if session is not None:
            session.begin_turn(request)
            self._cache.lengths[session.row] = session.read
            self._back.append(session)
            return
        if request.policy not in (None, self._policy):
            raise ConfigError(
                "rollout.engine: the transformers engine serves one policy at a time; set its kind to 'vllm' to serve several"
            )
        self._new.append(request)

    @property
    def most_sessions(self) -> int:
        """How many sessions it holds at once; further ones wait until another is closed."""
        return ROWS_PER_SLOT * self._slots

    @property
    def idle(self) -> bool:
        return not (self._reading or self._generating or self._back or (self._new and self._has_row()))

    def update_weights(self, policy: PolicyRef) -> None:
        """Continue with this policy; see `Engine`. Open sessions are read again with the new weights.

        Raises:
            AdapterMismatchError: the adapter belongs to another base, or is not served as trained; the old policy stays.
        """
        if policy == self._policy:
            return
        self._take_model(self._model_of(policy))
        try:
            self._check_served(policy)
        except BaseException:
            self._take_model(self._model_of(self._policy))
            raise
        self._policy, self.policy_version = policy, policy.version
        for session in self._sessions.values():
            self._cache.lengths[session.row] = 0
            session.read = 0
        self._reading += self._generating
        self._generating = []

    def close(self, session: int) -> None:
        self._cache.free_row(self._sessions.pop(session).row)

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        self._admit()
        sessions = self._next_pass()
        if not sessions:
            return []
        sessions, logits = self._with_same_prompt(*self._forward(sessions))
        ended: list[Generation] = []
        if not sessions:
            return ended
        for session, token, logprob in zip(sessions, *self._sample(logits, sessions), strict=True):
            session.append(token, logprob, self.policy_version)
            if generation := session.finished(self._stop_ids):
                ended.append(generation)
            else:
                self._generating.append(session)
        return ended

    def _take_model(self, model: Any) -> None:
        use_ragged_attention(model)
        self._model = model
        self._lean: LeanDecoder | None = None  # the copies of the model before are freed first
        self._lean = LeanDecoder(model) if LeanDecoder.suits(model) else None
        self._logits = OutputLogits(model)

    def _check_served(self, policy: PolicyRef) -> None:
        """Compare the model with the policy's probe, where it has one."""
        if policy.adapter is None and not (Path(policy.base) / PROBE).is_file():
            return

        def base_score(ids: list[int]) -> list[float]:
            self._take_model(self._model_of(PolicyRef(policy.base)))
            return self._score(ids)

        dtype = str(self._model.dtype).removeprefix("torch.")
        check_probe(policy.adapter or policy.base, self._score, dtype, base_score if policy.adapter else None)

    @torch.inference_mode()
    def _score(self, ids: list[int]) -> list[float]:
        """Log-probabilities [T - 1] of all but the first of `ids` [T], read in one pass in a cache of their own."""
        cache = RaggedCache(self._model)
        read = torch.tensor(ids[:-1])
        hidden = self._hidden(cache, [cache.take_row()], [len(read)], read)
        scored = torch.log_softmax(self._logits(hidden).float(), dim=-1).cpu()
        found: list[float] = scored.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
        return found

    def _has_row(self) -> bool:
        return len(self._sessions) < self.most_sessions

    def _admit(self) -> None:
        """Give slots to sessions with unread ids. Of new ones with the same prompt, one reads it for all."""
        free = self._slots - len(self._reading) - len(self._generating) - sum(map(len, self._same_prompt.values()))
        leaders: dict[tuple[int, ...], RaggedSession] = {}
        for _ in range(free):
            if self._back:
                self._reading.append(self._back.popleft())
            elif self._new and self._has_row():
                request = self._new.popleft()
                session = RaggedSession.open(request, self._cache.take_row(), self._sampling)
                self._sessions[session.number] = session
                leader = leaders.setdefault(tuple(request.new_ids), session)
                if leader is session:
                    self._reading.append(session)
                else:
                    self._same_prompt.setdefault(leader.number, []).append(session)
            else:
                break

    def _next_pass(self) -> list[RaggedSession]:
        """All generating sessions, and as many with unread ids as `READ_TOKENS` allows."""
        tokens = itertools.accumulate(min(session.unread, READ_CHUNK) for session in self._reading)
        count = max(1, sum(total <= READ_TOKENS for total in tokens))
        sessions = self._generating + self._reading[:count]
        self._generating, self._reading = [], self._reading[count:]
        return sessions

    def _with_same_prompt(
        self, sessions: list[RaggedSession], logits: torch.Tensor
    ) -> tuple[list[RaggedSession], torch.Tensor]:
        """`sessions` and `logits` [R, V], and those of the sessions whose prompt one of these has just read for them."""
        if not self._same_prompt:
            return sessions, logits
        everyone, rows = list(sessions), list(range(len(sessions)))
        for row, leader in enumerate(sessions):
            followers = self._same_prompt.pop(leader.number, [])
            if followers:
                self._cache.copy(leader.row, [session.row for session in followers])
            for session in followers:
                session.read = leader.read
            everyone += followers
            rows += [row] * len(followers)
        return everyone, logits[rows]

    def _forward(self, sessions: list[RaggedSession]) -> tuple[list[RaggedSession], torch.Tensor]:
        """Read unread ids. Returns the R sessions that have read all of theirs, and the logits [R, V] after the last."""
        self._move_together(sessions)
        counted = [(min(session.unread, READ_CHUNK), session) for session in sessions]
        counted.sort(key=lambda pair: (pair[0], pair[1].row))
        counts = [count for count, _ in counted]
        sessions = [session for _, session in counted]
        ids = torch.tensor([token for count, session in counted for token in session.next_ids(count)])
        logits = self._read(self._cache, [session.row for session in sessions], counts, ids)
        done = [index for index, session in enumerate(sessions) if not session.unread]
        if len(done) == len(sessions):
            return sessions, logits
        self._reading = [session for session in sessions if session.unread] + self._reading
        return [sessions[index] for index in done], logits[done]

    def _move_together(self, sessions: list[RaggedSession]) -> None:
        """Move sessions to the first rows if too few of the rows up to their last are in the pass."""
        taken = {session.row for session in sessions}
        count = len(sessions)
        if count >= SPARSE * (max(taken) + 1):
            return
        room = [row for row in range(count) if row not in taken]
        movers = [session for session in sessions if session.row >= count]
        self._cache.swap([session.row for session in movers], room)
        inside = {session.row: session for session in self._sessions.values()}
        for session, row in zip(movers, room, strict=True):
            if row in inside:
                inside[row].row = session.row
            session.row = row

    def _read(self, cache: RaggedCache, rows: list[int], counts: list[int], ids: torch.Tensor) -> torch.Tensor:
        """Read `ids` [N], `counts` [R] of them for each of `rows` [R]. Returns the logits [R, V] after each row's last."""
        last = torch.tensor(counts).cumsum(0) - 1
        return self._logits(self._hidden(cache, rows, counts, ids)[last.to(self._model.device)])

    def _hidden(self, cache: RaggedCache, rows: list[int], counts: list[int], ids: torch.Tensor) -> torch.Tensor:
        """Read as `_read`; returns the hidden states [N, H]."""
        positions = cache.begin(rows, counts)
        if self._lean:
            return self._lean(ids, positions, cache)
        hidden: torch.Tensor = self._model.base_model(
            input_ids=ids[None].to(self._model.device),
            position_ids=positions,
            attention_mask=torch.empty(1, 1, 1, 1),  # with four dimensions the model makes none itself
            use_cache=False,
            ragged=cache,
        ).last_hidden_state[0]
        return hidden

    def _probe(self, prompts: list[list[int]]) -> torch.Tensor:
        """The logits [R, V] after the last of each prompt, read in two chunks along with the others, in a separate cache."""
        cache = RaggedCache(self._model)
        rows = [cache.take_row() for _ in prompts]
        firsts = [prompt[: len(prompt) // 2] for prompt in prompts]
        rests = [prompt[len(prompt) // 2 :] for prompt in prompts]
        for parts in (firsts, rests):
            ids = torch.tensor([token for part in parts for token in part])
            logits = self._read(cache, rows, [len(part) for part in parts], ids)
        return logits

    def _sample(self, logits: torch.Tensor, sessions: list[RaggedSession]) -> tuple[list[int], list[float]]:
        """Choose one token per row of `logits` [R, V]; returns tokens and their log-probabilities."""
        distribution = TokenDistribution(logits, torch.tensor([[session.temperature] for session in sessions]))
        greedy = torch.tensor([[session.greedy] for session in sessions])
        uniforms = torch.zeros(len(sessions), 1, dtype=torch.float64)
        if not bool(greedy.all()):
            uniforms = torch.tensor([[session.next_uniform()] for session in sessions], dtype=torch.float64)
        tokens = distribution.draw(uniforms, torch.full_like(uniforms, self._sampling.top_p), greedy)
        return tokens[:, 0].tolist(), distribution.logprobs(tokens)[:, 0].tolist()
