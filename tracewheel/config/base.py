"""Base class and number types of the configuration models."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """A frozen model that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def kind_or(default: str) -> Discriminator:
    """Discriminate a union by `kind`; a section without one has the default kind."""

    def kind(values: Any) -> Any:
        return values.get("kind", default) if isinstance(values, dict) else getattr(values, "kind", None)

    return Discriminator(kind)
