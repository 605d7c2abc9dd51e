"""A logits processor that samples in vLLM from each session's own random numbers.

vLLM reports log-probabilities either before the temperature or after top-p; an engine needs those in between. So this
logits processor draws the tokens itself, by the same inverse transform and from the same random numbers as the
transformers engine, and leaves vLLM's greedy choice only the drawn token, with its log-probability as the logit, which
`logprobs_mode: processed_logits` reports. The settings of a request's draws come in its `extra_args` (`vllm_xargs`
over HTTP); requests without any are left alone.

A turn that a grammar holds is drawn from the tokens that it allows, and its log-probabilities are those among them. The
grammar comes as text; its masks are worked out here, in each of vLLM's processes, with the model's own tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from tracewheel.chat.grammar import Grammar, GrammarError, Grammars, GrammarState
from tracewheel.chat.tokenizer import load_tokenizer
from tracewheel.engines.draws import CUT, Draws
from tracewheel.engines.token_distribution import TokenDistribution
from tracewheel.policy.allowed_tokens import with_masks


class _Held:
    """A turn under its grammar: `bits` [W] of the next token, None where the grammar says no more within its limits."""

    def __init__(self, grammars: Grammars, draws: Draws) -> None:
        self._taken = 0
        self.bits: np.ndarray | None = None
        try:
            self._state: GrammarState | None = grammars.start(Grammar(draws.grammar, draws.grammar_stops))
            for token in draws.said:
                self._state.take(token)
        except GrammarError:  # the gateway has compiled it: only its limits can be the reason
            self._state = None

    def read(self, generated: list[int]) -> None:
        """Take what was generated since."""
        if self._state is None:
            return
        try:
            for token in generated[self._taken :]:
                self._state.take(token)
        except GrammarError:
            self._state = self.bits = None
            return
        self._taken = len(generated)
        self.bits = None if self._state.failed else self._state.bits


@dataclass
class _Row:
    draws: Draws
    uniforms: list[float]
    generated: list[int]  # vLLM's own list: its length is the position in the turn, even if a step is repeated
    held: _Held | None = None

    def uniform(self) -> float:
        return self.uniforms[len(self.generated)] if self.uniforms else 0.0

    def forced(self) -> int:
        return self.draws.forced[len(self.generated)] if self.draws.forced else -1


class SessionDraws(LogitsProcessor):
    """Draws a token for each request with `Draws`; see the module."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Check a request's settings.

        Raises:
            ValueError: they are not those of `Draws`, or the temperature is not 0.
        """
        draws = Draws.of(sampling_params.extra_args)
        if draws is not None and sampling_params.temperature != 0:
            raise ValueError("a request with draws of its own must have temperature 0")

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._device = device
        self._model: str = vllm_config.model_config.model
        self._grammars: Grammars | None = None
        self._rows: dict[int, _Row] = {}
        if device.type == "cpu":
            # vLLM makes its logits processors in each of its processes, before it loads the model.
            from tracewheel.engines.vllm_cpu_lora import install

            install()
        self._constants: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None = None

    def is_argmax_invariant(self) -> bool:
        """It changes which token is the most likely."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests to their rows in the batch."""
        if batch_update is None:
            return
        self._constants = None
        for index in batch_update.removed:
            self._rows.pop(index, None)
        for index, params, _, generated in batch_update.added:
            self._rows.pop(index, None)
            draws = Draws.of(params.extra_args)
            if draws is not None:
                assert params.max_tokens is not None
                self._rows[index] = _Row(draws, draws.uniforms(params.max_tokens), generated, self._held(draws))
        for one, other, direction in batch_update.moved:
            moved, back = self._rows.pop(one, None), self._rows.pop(other, None)
            if moved is not None:
                self._rows[other] = moved
            if back is not None and direction == MoveDirectionality.SWAP:
                self._rows[one] = back

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Leave in each row of `logits` [R, V] the drawn token, with its log-probability; the others get -inf."""
        if not self._rows:
            return logits
        rows = list(self._rows.values())
        if self._constants is None:
            self._constants = (
                torch.tensor(list(self._rows), device=self._device),
                torch.tensor([[row.draws.temperature] for row in rows]),
                torch.tensor([[row.draws.top_p] for row in rows], dtype=torch.float64),
                torch.tensor([[row.draws.greedy] for row in rows], dtype=torch.bool),
            )
        indices, temperatures, top_p, greedy = self._constants
        own = logits[indices].float()
        held = [(place, row.held) for place, row in enumerate(rows) if row.held is not None]
        for place, turn in held:
            turn.read(rows[place].generated)
        if masked := [(place, turn.bits) for place, turn in held if turn.bits is not None]:
            bits = torch.from_numpy(np.stack([bits for _, bits in masked]))
            own = with_masks(own, [place for place, _ in masked], bits)
        distribution = TokenDistribution(own, temperatures)
        uniforms = torch.tensor([[row.uniform()] for row in rows], dtype=torch.float64)
        tokens = distribution.draw(uniforms, top_p, greedy)
        forced = torch.tensor([[row.forced()] for row in rows]).to(self._device)
        tokens = torch.where(forced >= 0, forced, tokens)
        logits[indices] = -torch.inf
        logits[indices[:, None], tokens] = distribution.logprobs(tokens).to(logits.dtype)
        for place, turn in held:
            if turn.bits is None:
                logits[indices[place]] = -torch.inf
                logits[indices[place], rows[place].draws.grammar_stops[0]] = CUT
        return logits

    def _held(self, draws: Draws) -> _Held | None:
        if not draws.grammar:
            return None
        if self._grammars is None:
            self._grammars = Grammars(load_tokenizer(self._model))
        return _Held(self._grammars, draws)
