"""Base class and number types of the configuration models."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field

from tracewheel.core.kind_table import give
from tracewheel.core.kinds import Kind

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """A frozen model that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class KindConfig(Strict):
    """A kind and arguments for its class, which its own model checks; `tracewheel describe KIND` shows them."""

    kind: str = ""
    args: dict[str, Any] = Field(default_factory=dict)

    @property
    def spec(self) -> str:
        """The kind as text (`tracewheel.core.kinds`), as tasks hold it."""
        return Kind(self.kind, self.args).text


class GivenKind(KindConfig):
    """A kind that the user names in a profile, and which may be made for that (`tracewheel.core.kinds`)."""

    def model_post_init(self, context: Any) -> None:
        self._give()

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        self._give()  # another process has it from its parent

    def _give(self) -> None:
        give(self.spec)


def kind_or(default: str) -> Discriminator:
    """Discriminate a union by `kind`; a section without one has the default kind."""

    def kind(values: Any) -> Any:
        return values.get("kind", default) if isinstance(values, dict) else getattr(values, "kind", None)

    return Discriminator(kind)
