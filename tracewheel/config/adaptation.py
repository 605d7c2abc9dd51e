"""Adaptation: the shape of LoRA adapters, specialists for groups of task families, and merging."""

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
    """The shape of the run's adapter. `families` gives specialists of a task family another shape."""

    families: dict[str, LoraShape] = Field(default_factory=dict)

    def of(self, families: tuple[str, ...]) -> LoraShape | None:
        """The shape set for a group of families, or None where the group has the run's shape.

        Raises:
            ValueError: the families of the group have different shapes.
        """
        shapes = [self.families.get(family) for family in families]
        if any(shape != shapes[0] for shape in shapes):
            raise ValueError(
                f"lora.families: {', '.join(families)} are in one group and need one shape: give each of them the same"
            )
        return shapes[0]


class MergeConfig(Strict):
    """How adapters are merged, through PEFT.

    `linear` adds them up, each times `weight`. `ties` (Yadav et al. 2023) keeps the largest entries of each adapter, a
    share of `density`, and averages those that agree with the sign of their sum. `dare_linear` and `dare_ties` (Yu et al.
    2024) instead keep a random share and rescale it. The default `weight` gives the mean of all adapters; `linear` with
    weight 1 composes them.

    `space: weights` merges the changes that the adapters made to the weights since their start. `space: factors` merges
    the two low-rank matrices separately, which is a rough approximation, fast on large models, and needs equal ranks.
    `rank` is the rank of the result: by default the sum of the ranks, with `factors` the rank of one adapter.
    """

    method: Literal["linear", "ties", "dare_linear", "dare_ties"] = "ties"
    weight: Positive | None = None
    density: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    space: Literal["weights", "factors"] = "weights"
    rank: Count | None = None

    def label(self) -> str:
        """A short name with the settings that differ from the defaults, as in `ties density 0.5`."""
        changed = self.model_dump(exclude_defaults=True, exclude={"method"})
        return " ".join([self.method, *(f"{name} {value}" for name, value in changed.items())])


class SpecialistsConfig(Strict):
    """One adapter for each group of task families, trained on the group's tasks from a common start, then merged.

    Each group is trained for `iterations` iterations (default: those of the training section). Every entry of `merges` is
    tried; a merge is a candidate for the run's policy only if it is no worse on the validation split than its best part.
    """

    groups: Annotated[dict[str, Annotated[tuple[str, ...], Field(min_length=1)]], Field(min_length=1)]
    iterations: Count | None = None
    merges: tuple[MergeConfig, ...] = (MergeConfig(method="linear"), MergeConfig(method="ties"))
