"""The engine that a profile asks for, with a policy loaded."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tracewheel.adapters import PolicyRef
from tracewheel.config import RetrainConfig

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.base import Engine


def make_engine(config: RetrainConfig, policy: PolicyRef, *, greedy: bool, slots: int) -> tuple[Engine, ChatRenderer]:
    """The configured engine with the policy loaded, and the renderer of its chat format.

    Args:
        greedy: Take the most likely token at each step instead of sampling.
        slots: How many sessions there will be at once at most; the engine may take fewer.

    Raises:
        AdapterMismatchError: the policy's adapter belongs to another base.
        DataError: the base cannot be loaded.
        InputError: the engine would get the base's logits wrong.
    """
    import torch

    from tracewheel.engines.base import Sampling
    from tracewheel.engines.policy_model import load_for_generation, load_renderer
    from tracewheel.engines.transformers import TransformersEngine

    torch.set_num_threads(config.threads)
    renderer = load_renderer(policy.base, config.policy.tool_format)
    load = functools.partial(load_for_generation, config.policy)
    engine = TransformersEngine(
        load(policy),
        stop_id=renderer.end_of_turn_id,
        sampling=Sampling(config.rollout.temperature, config.rollout.top_p, greedy),
        slots=min(slots, config.rollout.engine.slots),
        policy_version=policy.version,
        longest=config.rollout.max_tokens,
        load=load,
    )
    return engine, renderer
