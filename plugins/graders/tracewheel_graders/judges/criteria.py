"""What a judge is asked: criteria with scales, the models that mark them, and limits on what they may cost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tracewheel import Count, EndpointConfig, Positive, Strict, content_hash


class Criterion(Strict):
    """One thing to mark: met or not met (`levels` 1), or a mark from 0 to `levels`.

    `weight` is its share of the total among the others.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    ask: Annotated[str, Field(min_length=1)]
    levels: Annotated[int, Field(ge=1, le=10)] = 1
    weight: Positive = 1.0


class JudgeModel(EndpointConfig):
    """A member of the ensemble: a model behind an endpoint, asked `votes` times with different seeds.

    `structured` is how the endpoint is held to the form of a verdict: `json_schema` and `json_object` set `response_format`,
    `none` only asks. The reply is checked in the same way with each. `advice` is added to this member's instructions.
    """

    temperature: Annotated[float, Field(ge=0.0)] = 0.0
    max_turn_tokens: Count = 1024
    votes: Annotated[int, Field(ge=1, le=15)] = 1
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    advice: str = ""

    @property
    def endpoint_config(self) -> EndpointConfig:
        """The member as the client of endpoints takes it. Its money is counted in the judge's journal, by all processes."""
        own = {"votes", "structured", "advice", "budget"}
        return EndpointConfig(**self.model_dump(exclude=own))

    @property
    def identity(self) -> str:
        """Equal for members that give the same marks: how fast and with which key they are asked does not count."""
        return content_hash(self.model_dump(mode="json", exclude=self.HOW_ASKED | {"votes"}))


class Limits(Strict):
    """The most that a judge may ask and spend, over all processes and runs that share its journal.

    `money` is in the currency of the members' prices.
    """

    calls: Count | None = None
    money: Positive | None = None


class JudgeSettings(Strict):
    """What every kind of judge takes.

    `journal` is a file in which each reply is kept: the same text is asked and paid for once. `again` is how often a reply that
    is no verdict is asked for once more. With `shows: answer` the judge sees the agent's last words alone, with `episode` all
    messages. A text longer than `longest` characters is cut in its middle.
    """

    models: Annotated[tuple[JudgeModel, ...], Field(min_length=1)]
    journal: Annotated[str, Field(min_length=1)] = "judge.jsonl"
    limits: Limits = Limits()
    again: Annotated[int, Field(ge=0, le=5)] = 1
    shows: Literal["answer", "episode"] = "episode"
    longest: Count = 60_000

    @model_validator(mode="after")
    def _check_prices(self) -> JudgeSettings:
        if self.limits.money is not None and any(model.prices is None for model in self.models):
            raise ValueError("limits.money needs prices: set prices.input and prices.output of each model")
        for number, model in enumerate(self.models):
            if model.budget is not None:
                raise ValueError(f"models.{number}.budget: a judge's budget is limits.money, over all its models")
            if model.extra.get("response_format") is not None:
                raise ValueError(f"models.{number}.extra.response_format: set by `structured`")
        if len({model.identity for model in self.models}) < len(self.models):
            raise ValueError("two models are the same in all that counts: set `votes` to ask one several times")
        return self


class JudgeArgs(JudgeSettings):
    """Arguments of the verifier `judge`: the criteria, each by its name, and who marks them."""

    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_names(self) -> JudgeArgs:
        names = [criterion.name for criterion in self.criteria]
        if len(set(names)) < len(names):
            raise ValueError(f"criteria need distinct names, not {', '.join(names)}")
        if taken := sorted(set(names) & {"flagged", "disagreement", "undetermined"}):
            raise ValueError(f"criteria: '{taken[0]}' is a part that every judge has; choose another name")
        return self
