"""Makes the engine that a profile configures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracewheel.config import EngineSections, TransformersEngineConfig, VllmEngineConfig
from tracewheel.policy.adapters import PolicyRef

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.base import Engine, Sampling


def make_engine(config: EngineSections, policy: PolicyRef, *, greedy: bool, slots: int) -> tuple[Engine, ChatRenderer]:
    """The configured engine with the policy loaded, and the renderer of its chat format.

    Args:
        greedy: Take the most likely token at each step instead of sampling.
        slots: The most sessions at once; the engine may take fewer.

    Raises:
        AdapterMismatchError: the policy's adapter belongs to another base.
        ConfigError: `rollout.max_tokens` is more than the base's window.
        DataError: the base cannot be loaded.
        InputError: the engine would get the base's logits wrong.
        InfrastructureError: vLLM is not installed, or does not start.
    """
    import torch

    from tracewheel.engines.base import Sampling
    from tracewheel.policy.limits import check_window
    from tracewheel.policy.loading import policy_renderer

    check_window(policy.base, config.rollout)
    torch.set_num_threads(config.threads)
    renderer = policy_renderer(config.policy, policy.base)
    sampling = Sampling(config.rollout.temperature, config.rollout.top_p, greedy)
    kind, stop_ids = config.rollout.engine, renderer.end_of_turn_ids
    if isinstance(kind, TransformersEngineConfig):
        return _transformers(config, policy, stop_ids, sampling, min(slots, kind.slots)), renderer
    from tracewheel.engines.vllm_settings import VllmSettings

    settings = VllmSettings.of(config)
    if isinstance(kind, VllmEngineConfig):
        from tracewheel.engines.vllm_core import shared_core
        from tracewheel.engines.vllm_local import VllmEngine

        return VllmEngine(lambda base: shared_core(base, settings), policy, stop_ids, sampling), renderer
    from tracewheel.engines.vllm_remote import VllmServerEngine, shared_servers

    cards = config.placement.vllm

    return VllmServerEngine(lambda base: shared_servers(base, settings, kind, cards), policy, stop_ids, sampling), renderer


def _transformers(
    config: EngineSections, policy: PolicyRef, stop_ids: frozenset[int], sampling: Sampling, slots: int
) -> Engine:
    from tracewheel.engines.transformers import TransformersEngine
    from tracewheel.policy.loading import PolicyWeights

    return TransformersEngine(
        PolicyWeights(config.policy).load, policy, stop_ids, sampling, slots, longest=config.rollout.max_tokens
    )
