"""Generation with Hugging Face transformers: continuous batching over a ragged key-value cache.

Each step is one forward pass: every generating session gets a token, and sessions with new ids read them in the same
pass. Nothing is computed twice: sessions with the same ids are one row of the pass for as long as they agree, as the
episodes of a group often do for most of their way, and a new session takes over the beginning of its prompt from an
open one that has it. Random numbers belong to the session, not to the batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tracewheel.config import EngineSections, TransformersEngineConfig
from tracewheel.core.errors import ConfigError
from tracewheel.engines.base import Generation, Request, Sampling, as_stop_ids
from tracewheel.engines.lean_decoder import LeanDecoder
from tracewheel.engines.model_check import check_model
from tracewheel.engines.products import OutputLogits
from tracewheel.engines.ragged_cache import NONE, RaggedCache, Twins, use_ragged_attention
from tracewheel.engines.ragged_session import BLOCK, PromptBeginnings, RaggedSession
from tracewheel.engines.token_distribution import TokenDistribution
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.allowed_tokens import with_masks
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

    CONSTRAINS = True

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
        self._waiting: list[RaggedSession] = []  # for a prompt's beginning that another session is about to read
        self._halts: dict[int, int] = {}  # how far sessions that are waited for read in the next pass
        self._prompts = PromptBeginnings()
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
        return not (self._reading or self._generating or self._waiting or self._back or (self._new and self._has_row()))

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
        closed = self._sessions.pop(session)
        self._prompts.forget(closed)
        self._cache.free_row(closed.row)

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        self._admit()
        sessions = self._next_pass()
        if not sessions:
            return []
        sessions, logits = self._forward(sessions)
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
        """Give slots to sessions with unread ids.

        A new one takes over the beginning of its prompt from an open session. Where that is about to read it in this very
        pass, the new one waits for it, and the other reads no further, so that what they then have in common is in step.
        """
        for session in self._waiting:
            self._take_over(session)
        self._reading += self._waiting
        self._waiting, self._halts = [], {}
        opened: set[RaggedSession] = set()
        for _ in range(self._slots - len(self._reading) - len(self._generating)):
            if self._back:
                self._reading.append(self._back.popleft())
            elif self._new and self._has_row():
                request = self._new.popleft()
                session = RaggedSession.open(request, self._cache.take_row(), self._sampling)
                self._sessions[session.number] = session
                owner, length = self._take_over(session)
                (self._waiting if owner in opened and self._waits(session, owner, length) else self._reading).append(session)
                opened.add(session)
            else:
                break

    def _take_over(self, session: RaggedSession) -> tuple[RaggedSession | None, int]:
        """Copy what an open session has read of this one's prompt; returns that session and the length they share."""
        owner, length = self._prompts.find(session)
        read = min(length, owner.read) if owner else 0
        if owner and read > session.read:
            self._cache.copy(owner.row, session.row, read)
            session.read = read
        return owner, length

    def _waits(self, session: RaggedSession, owner: RaggedSession, length: int) -> bool:
        """Whether a session waits for what one that was opened along with it reads first. Twins go together."""
        if owner.ids == session.ids:
            return owner in self._waiting
        if length - owner.read < BLOCK:
            return False
        self._halts[owner.number] = max(length, self._halts.get(owner.number, 0))
        return True

    def _next_pass(self) -> list[RaggedSession]:
        """All generating sessions, and as many with unread ids as `READ_TOKENS` allows; equal ones count once."""
        distinct: set[tuple[int, int]] = set()
        count = tokens = 0
        for session in self._reading:
            if session.place not in distinct:
                distinct.add(session.place)
                tokens += min(session.unread, READ_CHUNK)
            if count and tokens > READ_TOKENS:
                break
            count += 1
        sessions = self._generating + self._reading[:count]
        self._generating, self._reading = [], self._reading[count:]
        return sessions

    def _forward(self, sessions: list[RaggedSession]) -> tuple[list[RaggedSession], torch.Tensor]:
        """Read unread ids. Returns the R sessions that have read all of theirs, and the logits [R, V] after the last."""
        groups = _twins(sessions)
        self._move_together([group[0] for group in groups])
        counted = [(self._count(group), group) for group in groups]
        counted.sort(key=lambda pair: (pair[0], pair[1][0].row))
        counts, groups = [count for count, _ in counted], [group for _, group in counted]
        ids = torch.tensor([token for count, group in counted for token in group[0].next_ids(count)])
        for group in groups:
            for session in group[1:]:
                session.read = group[0].read
        twins = {group[0].row: [session.row for session in group[1:]] for group in groups if len(group) > 1}
        logits = self._read(self._cache, [group[0].row for group in groups], counts, ids, twins)
        done = [(index, session) for index, group in enumerate(groups) for session in group if not session.unread]
        self._reading = [session for group in groups for session in group if session.unread] + self._reading
        rows = [index for index, _ in done]
        return [session for _, session in done], logits if rows == [*range(len(logits))] else logits[rows]

    def _count(self, group: list[RaggedSession]) -> int:
        """How many tokens twins read in this pass."""
        halt = min(self._halts.get(session.number, len(session.ids)) for session in group)
        return min(halt - group[0].read, READ_CHUNK)

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

    def _read(
        self, cache: RaggedCache, rows: list[int], counts: list[int], ids: torch.Tensor, twins: Twins = NONE
    ) -> torch.Tensor:
        """Read `ids` [N], `counts` [R] of them for each of `rows` [R], and for their twins.

        Returns:
            The logits [R, V] after each row's last.
        """
        last = torch.tensor(counts).cumsum(0) - 1
        return self._logits(self._hidden(cache, rows, counts, ids, twins)[last.to(self._model.device)])

    def _hidden(
        self, cache: RaggedCache, rows: list[int], counts: list[int], ids: torch.Tensor, twins: Twins = NONE
    ) -> torch.Tensor:
        """Read as `_read`; returns the hidden states [N, H]."""
        positions, ids = cache.begin(rows, counts, twins), ids.to(self._model.device)
        if self._lean:
            return self._lean(ids, positions, cache)
        hidden: torch.Tensor = self._model.base_model(
            input_ids=ids[None],
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
        held = [(row, session.grammar.bits) for row, session in enumerate(sessions) if session.grammar is not None]
        if held:
            logits = with_masks(logits, [row for row, _ in held], torch.from_numpy(np.stack([bits for _, bits in held])))
        distribution = TokenDistribution(logits, torch.tensor([[session.temperature] for session in sessions]))
        greedy = torch.tensor([[session.greedy] for session in sessions])
        uniforms = torch.zeros(len(sessions), 1, dtype=torch.float64)
        if not bool(greedy.all()):
            numbers = [[session.next_uniform()] for session in sessions]
            uniforms = torch.tensor(numbers, dtype=torch.float64)
        tokens = distribution.draw(uniforms, torch.full_like(uniforms, self._sampling.top_p), greedy)
        return tokens[:, 0].tolist(), distribution.logprobs(tokens)[:, 0].tolist()


def _twins(sessions: list[RaggedSession]) -> list[list[RaggedSession]]:
    """The sessions in groups that have the same ids and have read as many of them, each by its row, lowest first."""
    groups: dict[tuple[int, int], list[RaggedSession]] = {}
    for session in sorted(sessions, key=lambda session: session.row):
        group = groups.setdefault(session.place, [])
        if group and group[0].ids != session.ids:  # as good as never
            group = groups[(-session.number, -1)] = []
        group.append(session)
    return list(groups.values())


def make(
    config: EngineSections, policy: PolicyRef, stop_ids: frozenset[int], sampling: Sampling, slots: int
) -> TransformersEngine:
    """The engine that a profile configures; see `engines.making`."""
    from tracewheel.policy.loading import PolicyWeights

    engine = config.rollout.engine
    assert isinstance(engine, TransformersEngineConfig)
    weights, longest = PolicyWeights(config.policy).load, config.rollout.max_tokens
    return TransformersEngine(weights, policy, stop_ids, sampling, min(slots, engine.slots), longest=longest)
