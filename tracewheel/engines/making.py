"""Makes the engine that a profile configures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracewheel.config import EngineSections
from tracewheel.core.kind_table import import_class
from tracewheel.policy.adapters import PolicyRef

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.base import Engine


# Each makes its engine from the sections, the policy, the ids that end a turn, the sampling, and the most sessions at once.
ENGINES = {
    "transformers": "tracewheel.engines.transformers:make",
    "vllm": "tracewheel.engines.vllm_core:make",
    "vllm_server": "tracewheel.engines.vllm_remote:make",
}


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
    engine = import_class(ENGINES[config.rollout.engine.kind], "engine")
    made: Engine = engine(config, policy, renderer.end_of_turn_ids, sampling, slots)
    return made, renderer
