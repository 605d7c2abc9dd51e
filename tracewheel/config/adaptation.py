"""How a model is adapted: LoRA's shape, specialists for groups of task families, and how adapters are merged."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tracewheel.config.base import Count, Positive, Strict


class LoraShape(Strict):
    """Low-rank adaptation (Hu et al. 2021) of the named linear layers."""

    rank: Count = 16
    alpha: Count = 32
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"


class LoraConfig(LoraShape):
    """The shape of the run's adapter, and of a family's own where a specialist is trained for it."""

    families: dict[str, LoraShape] = Field(default_factory=dict)

    def of(self, families: tuple[str, ...]) -> LoraShape | None:
        """The shape that a group of families has of its own, None where it has the run's.

        Raises:
            ValueError: the families of the group have different shapes.
        """
        shapes = [self.families.get(family) for family in families]
        if any(shape != shapes[0] for shape in shapes):
            raise ValueError(
                f"lora.families: {', '.join(families)} are in one group and need one shape, given for each of them"
            )
        return shapes[0]


class MergeConfig(Strict):
    """How adapters become one, through PEFT.

    `linear` adds them up, each times `weight`. `ties` (Yadav et al. 2023) keeps of each its largest
    entries, the share `density`, and averages those that agree with the sign of their sum. `dare_linear`
    and `dare_ties` (Yu et al. 2024) keep a random share and scale it up instead. The default `weight` makes
    a mean of all; with `linear` and weight 1 the adapters are composed.

    With `space` `weights` what is merged is how the adapters have changed the weights since their start.
    With `factors` their two low-rank matrices are merged apart and as they are, which is a rough
    approximation: it is quick on large models, and wants equal ranks. `rank` is that of the result: by
    default what all parts together have, with `factors` that of one.
    """

    method: Literal["linear", "ties", "dare_linear", "dare_ties"] = "ties"
    weight: Positive | None = None
    density: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    space: Literal["weights", "factors"] = "weights"
    rank: Count | None = None

    def weight_of(self, parts: int) -> float:
        """The weight of each of so many parts."""
        if self.weight is not None:
            return self.weight
        if self.method in ("ties", "dare_ties"):
            return 1.0  # they average by themselves
        # PEFT takes the square root for each of the two factors, so their product needs the square.
        return 1.0 / parts if self.space == "weights" else 1.0 / parts**2

    def label(self) -> str:
        """What tells this way of merging from others, as in `ties density 0.5`."""
        changed = self.model_dump(exclude_defaults=True, exclude={"method"})
        return " ".join([self.method, *(f"{name} {value}" for name, value in changed.items())])


class SpecialistsConfig(Strict):
    """One adapter for each group of task families, each trained on its own tasks from the same start, then merged.

    Each group has the whole loop of `iterations` (those of the training when not given). Each way of merging
    is tried; a merge takes part in the choice of the run's policy only when it is not worse on the validation
    split than the best of its parts.
    """

    groups: Annotated[dict[str, Annotated[tuple[str, ...], Field(min_length=1)]], Field(min_length=1)]
    iterations: Count | None = None
    merges: tuple[MergeConfig, ...] = (MergeConfig(method="linear"), MergeConfig(method="ties"))
