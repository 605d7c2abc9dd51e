"""How logs become tasks: what is redacted, what counts as a duplicate, how tasks are split and told easy from hard."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from tracewheel.config.base import Count, Share, Strict

PersonalKind = Literal["email", "phone", "card", "iban", "ip"]
PERSONAL_KINDS: tuple[PersonalKind, ...] = ("email", "phone", "card", "iban", "ip")


class RedactionConfig(Strict):
    """What is taken out of logs before anything is stored, and what is left in.

    Every secret that is found goes; of personal data the kinds in `personal`. A text in `allow` stays, and so does one
    that a pattern of `allow_patterns` matches as a whole. `patterns` are regular expressions of your own, by the kind that
    they find, tried on every text; a pattern with groups gives up its first group. Phone numbers without a country's
    code are looked for as they are written in `phone_regions`.

    A value has one pseudonym within a trace. With `scope` `dataset` it has the same one in all traces, which recorded
    environments gain from; that takes a key, in the environment variable `key_variable`, without which nobody can tell by
    trying whose pseudonym it is. Users and sessions always have one pseudonym in all traces, or splits could not keep them
    together: with that variable it is made with the key, without it everybody who guesses an address can check the guess.
    """

    enabled: bool = True
    personal: tuple[PersonalKind, ...] = PERSONAL_KINDS
    allow: tuple[str, ...] = ()
    allow_patterns: tuple[str, ...] = ()
    patterns: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], str] = Field(default_factory=dict)
    phone_regions: tuple[Annotated[str, Field(pattern=r"^[A-Z]{2}$")], ...] = ("US", "GB", "DE", "FR")
    scope: Literal["trace", "dataset"] = "trace"
    key_variable: str = "TRACEWHEEL_REDACTION_KEY"

    @field_validator("allow_patterns")
    @classmethod
    def _are_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            _compiled(pattern)
        return patterns

    @field_validator("patterns")
    @classmethod
    def _find_something(cls, patterns: dict[str, str]) -> dict[str, str]:
        for pattern in patterns.values():
            if _compiled(pattern).search(""):
                raise ValueError(f"the pattern {pattern!r} matches a text of no length: it would be found everywhere")
        return patterns


DuplicateKind = Literal["exact", "semantic", "renumbered", "near"]


class DuplicatesConfig(Strict):
    """When two traces are one twice.

    `similar` is the least Jaccard similarity of the words of two tasks and their calls, with numbers left open, so
    that a renumbered copy is found. `same_content` is that of what they are about (names, numbers, paths, arguments; the
    words around them count less), so that a paraphrase is found. Both are estimated with `permutations` hash functions.
    Of each trace `longest` characters are looked at.

    `near` says which traces are compared so: `unkeyed` those whose log says nothing of the environment's goal, because where an
    environment says that two tasks differ, like words do not make them one; or `all`. `link` says which kinds of
    duplicates keep tasks on one side of the splits.
    """

    similar: Annotated[float, Field(gt=0.0, le=1.0)] = 0.8
    same_content: Annotated[float, Field(gt=0.0, le=1.0)] = 0.6
    permutations: Annotated[int, Field(ge=16, le=512, multiple_of=8)] = 128
    longest: Count = 8_000
    near: Literal["unkeyed", "all"] = "unkeyed"
    link: tuple[DuplicateKind, ...] = ("exact", "semantic", "renumbered", "near")


class DecontaminationConfig(Strict):
    """Which benchmarks must not be trained on: files of theirs (JSON, JSONL, Parquet, plain text), and what overlap counts.

    A trace holds an item of a benchmark when it shares a run of `words` words with it (Brown et al. 2020 take 13) and at least
    `share` of all such runs of the item, or when the two are `similar` by MinHash. A run that occurs in more than
    `common` items of one file is a phrase of the benchmark and not of the item, and does not count.
    """

    benchmarks: tuple[str, ...] = ()
    words: Annotated[int, Field(ge=3)] = 13
    share: Share = 0.2
    similar: Annotated[float, Field(gt=0.0, le=1.0)] = 0.8
    common: Count = 10


class DifficultyConfig(Strict):
    """How hard a task is, by how often it is solved.

    The pass rate is the mean of a Beta posterior; of the evidence of earlier runs the share `decay` is kept. `tiers` are
    the pass rates at which a task becomes one tier harder, from the easiest down: above the first is tier 1. Tiers that
    the environment gives are kept.
    """

    decay: Share = 0.5
    tiers: Annotated[tuple[Share, ...], Field(min_length=1)] = (0.8, 0.6, 0.4, 0.2)

    @model_validator(mode="after")
    def _in_order(self) -> DifficultyConfig:
        if list(self.tiers) != sorted(set(self.tiers), reverse=True):
            raise ValueError("curation.difficulty.tiers fall: each is a lower pass rate than the one before")
        return self


class SetsConfig(Strict):
    """What goes into the sets that curation leaves for the stages of training.

    `sources` says how the outcome of a demonstration must be known. Only `verified` is proof; of logs without a simulator
    there is none, and `logged` is the best that can be had. Preference pairs are made of two episodes whose outcomes differ by
    `margin` at least, at most `pairs_per_task` of a task; `shared` says what the two must have in common up to where they part:
    all messages, or with `calls` the calls and what the tools replied.
    """

    sources: Annotated[tuple[Literal["verified", "logged", "judged"], ...], Field(min_length=1)] = ("verified",)
    pairs_per_task: Count = 8
    margin: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    shared: Literal["messages", "calls"] = "messages"


class CurationConfig(Strict):
    """How logged traces become tasks, splits and demonstrations. Counts are of tasks.

    `split` says how sides are chosen: `components` draws whole components, spread over families and tiers;
    `temporal` tests on what came last, validates on what came before it, and trains on what is older. `filter` keeps the
    tasks of which it holds, as in `0 < pass_rate < 0.6 and attempts >= 4`; empty keeps all. With `allow_leak` a task, user,
    session or copy on two sides is reported and no error: every figure of such a run is then in doubt.
    """

    train_tasks: Count = 72
    validation_tasks: Count = 120
    held_out_tasks: Count = 200
    harder_tasks: Count = 100
    harder_tier: Count = 5
    min_attempts: Count = 4
    split: Literal["components", "temporal"] = "components"
    filter: str = ""
    allow_leak: bool = False
    duplicates: DuplicatesConfig = DuplicatesConfig()
    decontamination: DecontaminationConfig = DecontaminationConfig()
    difficulty: DifficultyConfig = DifficultyConfig()
    sets: SetsConfig = SetsConfig()


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
