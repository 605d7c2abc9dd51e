"""Curation: redaction, duplicates, decontamination, splits, difficulty and training sets."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator, model_validator

from tracewheel.config.base import Count, Share, Strict

PersonalKind = Literal[
    "email",
    "phone",
    "card",
    "iban",
    "ip",
    "mac",
    "gps",
    "national_id",
    "passport",
    "driving_licence",
    "bank_account",
    "imei",
    "birth_date",
    "name",
    "address",
]
PERSONAL_KINDS: tuple[PersonalKind, ...] = get_args(PersonalKind)
# Names and addresses are found by the words around them only, and tools take them as arguments: a profile asks for them.
DEFAULT_PERSONAL: tuple[PersonalKind, ...] = PERSONAL_KINDS[:-2]


class RedactionConfig(Strict):
    """What is removed from logs before anything is stored.

    All detected secrets are removed, and personal data of the kinds in `personal`. Exempt are texts in `allow` and texts
    that a pattern of `allow_patterns` matches as a whole. `patterns` maps a kind to a regular expression of your own, which
    is searched in every text; of a pattern with groups the first group is removed. Phone numbers without a country code
    are detected in the formats of `phone_regions`.

    A value has one pseudonym within a trace. `scope: dataset` gives it the same pseudonym in all traces, which helps
    recorded environments. This needs a secret key in the environment variable `TRACEWHEEL_REDACTION_KEY`, which stops
    others from finding the value behind a pseudonym by trial. Users and sessions have the same pseudonym in all traces in
    any case, because splits keep them together; without the key, anyone who guesses an address can check the guess.
    """

    enabled: bool = True
    personal: tuple[PersonalKind, ...] = DEFAULT_PERSONAL
    allow: tuple[str, ...] = ()
    allow_patterns: tuple[str, ...] = ()
    patterns: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], str] = Field(default_factory=dict)
    phone_regions: tuple[Annotated[str, Field(pattern=r"^[A-Z]{2}$")], ...] = ("US", "GB", "DE", "FR")
    scope: Literal["trace", "dataset"] = "trace"

    @field_validator("allow_patterns")
    @classmethod
    def _check_patterns_compile(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            _compiled(pattern)
        return patterns

    @field_validator("patterns")
    @classmethod
    def _check_patterns_match_text(cls, patterns: dict[str, str]) -> dict[str, str]:
        for pattern in patterns.values():
            if _compiled(pattern).search(""):
                raise ValueError(f"the pattern {pattern!r} matches the empty string and would be found everywhere")
        return patterns


DuplicateKind = Literal["exact", "semantic", "renumbered", "near"]


class DuplicatesConfig(Strict):
    """Which kinds of duplicates keep tasks on the same side of the splits (`link`)."""

    link: tuple[DuplicateKind, ...] = ("exact", "semantic", "renumbered", "near")


class DecontaminationConfig(Strict):
    """Benchmarks that must not be trained on: JSON, JSONL, Parquet or text files."""

    benchmarks: tuple[str, ...] = ()


class SetsConfig(Strict):
    """`sources` lists the accepted sources of a demonstration's outcome.

    Only `verified` is proof; logs without a simulator have no better source than `logged`.
    """

    sources: Annotated[tuple[Literal["verified", "logged", "judged"], ...], Field(min_length=1)] = ("verified",)


class SharesConfig(Strict):
    """The side of components that come after the first curation: shares of all components; the rest trains.

    A side is for ever, so shares that change decide about later components only.
    """

    validation: Share = 0.15
    test: Share = 0.25

    @property
    def by_side(self) -> dict[str, float]:
        """The share of each side."""
        return {"train": 1 - self.validation - self.test, "test": self.test, "validation": self.validation}

    @model_validator(mode="after")
    def _leave_some_for_training(self) -> SharesConfig:
        if self.validation + self.test >= 1:
            raise ValueError("curation.shares: validation and test leave nothing to train on; their sum must be below 1")
        return self


class RotateConfig(Strict):
    """Renewal of the held-out set: every `every` curations of new logs, this share of it is released to training.

    The tasks that were held out longest go first, and no more than there are unused tasks of the test side to take
    their places. The other direction does not exist: what was trained on is never held out.
    """

    every: Count
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1


class CurationConfig(Strict):
    """How logged traces become tasks, splits and demonstrations. Counts are of tasks.

    `harder_tasks` are of tier `harder_tier`, above all that are trained on; with 0 no tier is set apart. With `counts: auto`
    the sizes and `min_attempts` are the most, and what the logs cannot fill is fitted to them and reported; with `exact` the
    first curation must fill all sets. Later ones start from its record of splits (docs/splits.md): a component stays
    on its side, `shares` place new ones, and the sets are filled up to their sizes.

    `split: components` draws whole connected components, spread over families and tiers. `split: temporal` tests on the
    latest tasks, validates on those before them, and trains on the rest. `filter` is a condition on tasks, as in
    `0 < pass_rate < 0.6 and attempts >= 4`; empty keeps all. With `allow_leak`, a task, user, session or copy on two sides
    is reported instead of raised as an error; no figure of such a run can be trusted. Where under half of the episodes agree
    with their log when replayed, curation ends with exit code 2 and no run is trained, unless `allow_drift`.

    A full set gives the share `recent_share` of its places to the tasks of its side that were seen most recently
    (docs/splits.md); with 0 it keeps those that were there first for ever.

    `other_versions`: traces that were logged with another system prompt or other tools than today's are kept as they are, left
    out, or rewritten to today's, where they call no tool that is gone.

    `by` is for logs without a simulator (a recorded environment): `turn` makes a task of each user message, `episode` one of
    each of the log's tasks. The log's outcomes are about whole episodes, so `auto` is `episode` where `sets.sources` trusts
    them, else `turn`.
    """

    counts: Literal["auto", "exact"] = "auto"
    train_tasks: Count = 72
    validation_tasks: Count = 120
    held_out_tasks: Count = 200
    harder_tasks: Annotated[int, Field(ge=0)] = 100
    harder_tier: Count = 5
    min_attempts: Annotated[int, Field(ge=0)] = 4
    split: Literal["components", "temporal"] = "components"
    shares: SharesConfig = SharesConfig()
    rotate: RotateConfig | None = None
    recent_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    by: Literal["auto", "turn", "episode"] = "auto"
    other_versions: Literal["keep", "leave_out", "rewrite"] = "keep"
    filter: str = ""
    allow_leak: bool = False
    allow_drift: bool = False
    duplicates: DuplicatesConfig = DuplicatesConfig()
    decontamination: DecontaminationConfig = DecontaminationConfig()
    sets: SetsConfig = SetsConfig()

    @property
    def tier_limit(self) -> int:
        """The tier below which tasks train, validate and are held out."""
        return self.harder_tier if self.harder_tasks else sys.maxsize

    @property
    def recorded_by(self) -> Literal["turn", "episode"]:
        """How tasks are cut from the traces of a recorded environment."""
        if self.by == "auto":
            return "episode" if {"logged", "judged"} & set(self.sets.sources) else "turn"
        return self.by

    @model_validator(mode="after")
    def _rotate_components_only(self) -> CurationConfig:
        if self.rotate and self.split == "temporal":
            raise ValueError("curation.rotate: a split by time renews its held-out set with each run; leave rotate out")
        return self


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
