"""The check of the base's chat template at the start of a run."""

from __future__ import annotations

from typing import Any

from tasks.engine.run import Run
from tracewheel.core.errors import UntrainableBase
from tracewheel.environments import make_environment
from tracewheel.policy.template import Checked, check_base
from tracewheel.rollout.training_tasks import training_world
from tracewheel.scoring.rubric import Rubric

TEMPLATE_FILE = "template.json"


def checked_template(run: Run) -> dict[str, Any]:
    """What the check found, said in a line, before anything is written.

    Raises:
        ConfigError: the environment or a verifier of the rubric does not exist, or does not take its arguments.
        UntrainableBase: the base cannot be trained turn by turn, or the environment has tools and its template has none.
    """
    policy = run.config.policy
    chosen = None if policy.tool_format == "auto" else policy.tool_format
    check, _ = check_base(Checked(policy.base, chosen, policy.chat_template, policy.template_options))
    world = run.config.environment.spec
    has_tools = bool(make_environment(world).tools())
    if run.config.rollout.exploration.environment_args:
        make_environment(training_world(run.config.rollout.exploration, world, run.config.seed))
    if run.config.evaluation.rubric:
        Rubric(run.config.evaluation.rubric, [])
    Rubric(run.config.rubric, [])  # wrong arguments of a verifier are said now, not after the first rollout
    if not (check.trainable if has_tools else check.trainable_without_tools):
        command = f"`tracewheel stage check-template {policy.base}` shows the whole check"
        raise UntrainableBase(f"policy.base: {policy.base} cannot be trained: {'; '.join(check.reasons)}; {command}")
    run.reporter.say(check.says())
    return check.to_record()
