"""The environment `proposals`: a policy proposes a task of another environment by one call. It decides nothing but that."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tracewheel import (
    ConfigError,
    DataError,
    Environment,
    Observation,
    Strict,
    Task,
    TaskMaker,
    content_hash,
    function_tool,
    kind_text,
    make_environment,
    parse_kind,
)

SEEDS = 1000
PROMPT = "Propose one task for practice, number {}."


class Named(Strict):
    """An environment by its kind."""

    kind: str
    args: dict[str, Any] = Field(default_factory=dict)


class ProposalsArgs(Strict):
    """`environment` is the one whose tasks are proposed; it generates tasks (`TaskMaker`)."""

    environment: Named


class Proposals:
    """One call of `propose_task` ends the episode. The language is the generator's: a family, a tier, a seed.

    >>> desk = Proposals(ProposalsArgs(environment=Named(kind="workspace")))
    >>> desk.step("propose_task", {"family": "pattern", "tier": 2, "seed": 7}).done
    True

    State: `{"proposal": {"family", "tier", "seed"} or None}`.

    Raises:
        ConfigError: the environment generates no tasks.
    """

    kind = "proposals"
    Args = ProposalsArgs
    verifiers = ("learnable",)
    system_prompt = "You propose tasks for another agent. A good task is one that it sometimes solves."

    def __init__(self, args: ProposalsArgs) -> None:
        self._maker = maker_of(kind_text(args.environment.kind, args.environment.args))
        self._proposal: dict[str, Any] | None = None

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        raise DataError("proposals: no log has such tasks")

    def tools(self) -> list[dict[str, Any]]:
        maker = self._maker
        properties = {
            "family": {"type": "string", "enum": list(maker.families)},
            "tier": {"type": "integer", "enum": list(maker.tiers)},
            "seed": {"type": "integer"},
        }
        return [function_tool("propose_task", f"Propose a task; seed is 0 to {SEEDS - 1}.", properties)]

    def reset(self, task: Task) -> None:
        self._proposal = None

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        """One proposal; a mistake is an observation."""
        try:
            self._proposal = checked(self._maker, args)
        except ValueError as error:
            return Observation(f"error: {error}", error=True)
        return Observation("proposed", done=True)

    def snapshot(self) -> dict[str, Any]:
        return {"proposal": self._proposal and dict(self._proposal)}


def maker_of(environment: str) -> TaskMaker:
    """The environment, if it generates tasks.

    Raises:
        ConfigError: it does not.
    """
    made: Environment = make_environment(environment)
    if not isinstance(made, TaskMaker):
        lacks = ", ".join(name for name in ("make_tasks", "families", "tiers") if not hasattr(made, name))
        raise ConfigError(f"environment {environment}: no task of it can be proposed: a generator needs {lacks}")
    return made


def checked(maker: TaskMaker, args: dict[str, Any]) -> dict[str, Any]:
    """A proposal in the generator's language.

    Raises:
        ValueError: it is not.
    """
    if args.keys() != {"family", "tier", "seed"}:
        raise ValueError("arguments must be family, tier, seed")
    if args["family"] not in maker.families:
        raise ValueError(f"family is one of {', '.join(maker.families)}")
    if type(args["tier"]) is not int or args["tier"] not in maker.tiers:
        raise ValueError(f"tier is one of {', '.join(map(str, maker.tiers))}")
    if type(args["seed"]) is not int or not 0 <= args["seed"] < SEEDS:
        raise ValueError(f"seed is a whole number from 0 to {SEEDS - 1}")
    return dict(args)


def task_of(maker: TaskMaker, proposal: dict[str, Any]) -> Task | None:
    """The task that a proposal names: of one round of the generator with this seed, that of the family and tier; else None."""
    made = maker.make_tasks(len(maker.families) * len(maker.tiers), proposal["seed"])
    return next((task for task in made if (task.family, task.tier) == (proposal["family"], proposal["tier"])), None)


def proposal_tasks(environment: str, verifier: str, n: int) -> list[Task]:
    """`n` requests for a proposal.

    Args:
        environment: The kind, as text, whose tasks are proposed.
        verifier: What rewards a proposal.
    """
    kind, made = kind_text("proposals", {"environment": parse_kind(environment)._asdict()}), []
    for number in range(n):
        prompt = PROMPT.format(number + 1)
        fingerprint = content_hash([environment, prompt])
        made.append(Task(f"propose-{number + 1}", kind, "propose", 0, prompt, {}, {}, verifier, fingerprint))
    return made
