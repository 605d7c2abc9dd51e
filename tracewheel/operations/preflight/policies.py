"""The settings of a profile that need no log: rubric, advantage, base, template, prompts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tracewheel.config import RolloutSections
from tracewheel.config.algorithms import OwnAdvantageConfig
from tracewheel.core.errors import ConfigError, TracewheelError
from tracewheel.core.machine import available
from tracewheel.operations.preflight.line import Line, Looked
from tracewheel.policy import template
from tracewheel.policy.adapters import base_folder
from tracewheel.policy.limits import check_base
from tracewheel.rollout.prompt_lengths import check_prompts
from tracewheel.scoring.rubric import Rubric

GIB = 1 << 30


def check_verifiers(looked: Looked) -> Iterator[Line]:
    Rubric(looked.config.rubric, [])
    if looked.config.evaluation.rubric:
        Rubric(looked.config.evaluation.rubric, [])
    yield Line("rubric", "ok", ", ".join(term.kind for term in looked.config.rubric.verifiers))


def check_advantage(looked: Looked) -> Iterator[Line]:
    """A user's own advantage, on a few rewards of which one is missing."""
    advantage = getattr(looked.config.learner, "advantage", None)
    if not isinstance(advantage, OwnAdvantageConfig):
        return
    import torch

    from tracewheel.learner.advantages.trajectories import trajectory_advantages

    rewards = torch.tensor([1.0, 0.0, float("nan"), 0.5, 0.5], dtype=torch.double)
    try:
        found = trajectory_advantages(advantage, rewards, ["a", "a", "a", "b", "b"])
    except TracewheelError:
        raise
    except Exception as error:  # anyone's code
        raise ConfigError(f"advantage '{advantage.kind}' raises {type(error).__name__}: {error}") from error
    yield Line(
        "advantage", "ok", f"{advantage.kind}: of rewards 1, 0, none | 0.5, 0.5: {[round(x, 3) for x in found.tolist()]}"
    )


def check_base_policy(looked: Looked) -> Iterator[Line]:
    folder = base_folder(str(looked.config.policy.base))
    looked.has_base = True
    check_base(looked.config)
    yield from _memory(folder)


def check_template(looked: Looked) -> Iterator[Line]:
    if not looked.has_base:
        return
    policy = looked.config.policy
    chosen = None if policy.tool_format == "auto" else policy.tool_format
    check, _ = template.check_base(template.Checked(str(policy.base), chosen, policy.chat_template, policy.template_options))
    if check.trainable:
        yield Line("template", "ok", check.says())
    else:
        yield Line("template", "error", "; ".join(check.reasons), f"tracewheel stage check-template {policy.base}")


def check_room(looked: Looked) -> Iterator[Line]:
    if not looked.tasks or not looked.has_base:
        return
    warning = check_prompts(RolloutSections.of(looked.config), looked.tasks)
    says = f"leave room for turns of {looked.config.rollout.max_turn_tokens} tokens in {looked.config.rollout.max_tokens}"
    is_wrong = warning and not looked.config.rollout.harness
    yield Line("prompts", "warning" if is_wrong else "ok", warning or says)


def _memory(folder: Path) -> Iterator[Line]:
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    free = available()
    if not weights or free is None:
        yield Line("base", "ok", str(folder))
        return
    says = f"{weights / GIB:.2f} GiB of weights, {free / GIB:.1f} GiB of memory free"
    if 2 * weights > free:
        yield Line("base", "error", says, "a run needs more than twice the weights: take a smaller base, or free memory")
    else:
        yield Line("base", "ok", says)
