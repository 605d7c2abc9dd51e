"""The file of settings of `tracewheel prompt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from tracewheel import ConfigError, Count, EndpointConfig, Strict


class PromptSettings(Strict):
    """How a prompt is optimised, and what it may cost.

    Attributes:
        reflection: The model that reads what went wrong and rewrites a part. Its `budget` is money, and needs `prices`.
        optimizer: `gepa`.
        parts: What may change. Each tool's description is a part of its own.
        tokens: The most tokens that the policy samples while it is optimised. The evaluations at the end come on top.
        reflections: The most replies of the reflection model.
        iterations: The most proposals.
        train_tasks: The most training tasks; all by default.
        validation_tasks: How many validation tasks choose among prompts.
        minibatch: Training tasks on which a proposal must beat its parent.
        samples: Episodes a task.
        demonstrations: The most that a prompt holds.
        longest: The most characters of a part.
        seed: Of the order of tasks and of all episodes.
    """

    reflection: EndpointConfig
    optimizer: Literal["gepa"] = "gepa"
    parts: Annotated[tuple[Literal["system", "tools", "demonstrations"], ...], Field(min_length=1)] = (
        "system",
        "tools",
        "demonstrations",
    )
    tokens: Count = 500_000
    reflections: Count = 40
    iterations: Count = 40
    train_tasks: Count | None = None
    validation_tasks: Count = 48
    minibatch: Count = 8
    samples: Count = 1
    demonstrations: Annotated[int, Field(ge=1, le=16)] = 3
    longest: Annotated[int, Field(ge=100, le=20_000)] = 4_000
    seed: Annotated[int, Field(ge=0)] = 0

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read and check the file.

        Raises:
            ConfigError: it is missing, not YAML, or invalid; the message names the key.
        """
        import yaml

        try:
            values: Any = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}; name a file with the key reflection") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: is not YAML: {error}") from error
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise ConfigError(f"{path}: {key or 'the file'}: {first['msg']}") from error
