"""Which logs are read, and what is taken out of them before anything is stored."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from tracewheel.config.base import GivenKind, Strict
from tracewheel.config.curation import RedactionConfig
from tracewheel.core.files import LARGEST_EXPANSION, LARGEST_SETTING
from tracewheel.core.kind_table import how_to_get
from tracewheel.core.log_formats import AUTO, READERS, checked_format
from tracewheel.core.paths import JsonPath


def path_or_constant(text: str) -> str:
    """The text, which is a path or `=` and a constant.

    Raises:
        ValueError: it is neither.
    """
    if not text.startswith("="):
        JsonPath(text)
    return text


def _reader_kind(name: str) -> str:
    if name not in READERS and ":" not in name:
        if how := how_to_get("reader", name):
            raise ValueError(f"reader '{name}' is {how}")
        raise ValueError(f"a reader of your own is 'module:Class' or one of {', '.join(READERS)}, not '{name}'")
    return name


class ReaderConfig(GivenKind):
    """A reader of one's own: `module:Class`, made with `args`; or `mapping`, whose `args` say where things are in a record."""

    kind: Annotated[str, AfterValidator(_reader_kind)]

    @model_validator(mode="after")
    def _check_args(self) -> ReaderConfig:
        if self.kind in READERS:
            READERS[self.kind].check(self.args)
        return self


OutcomeKind = Literal["verified", "label", "thumb", "judge", "implicit"]
TrustedKind = Literal["verified", "label", "thumb"]
OUTCOME_KINDS: tuple[OutcomeKind, ...] = get_args(OutcomeKind)


class OutcomesConfig(Strict):
    """Outcomes that were said after the conversation: in files of their own, in `serve`'s log, or in a log that has it again.

    `paths` are CSV, JSON lines or JSON lists; `fields` says where the `id` or the `session` of the conversation, the `value`,
    the `kind` and the time (`said`) are, as `ingest.fields` does. Without a kind a row of a file is a `label`.

    Of the kinds in `precedence` the first that somebody has stated is a trace's outcome; of one kind, the latest. What the log
    says with the conversation is `verified`. A judge's opinion is never an outcome: `curation.sets.sources` may allow it as
    `judged`. An implicit one is kept and counted, and nothing is trained on it.

    From the value in `success_from` on, an outcome of a kind is 1, and 0 below; without it the value is taken as it is. What
    was said more than `max_age_days` after the conversation began does not count.
    """

    paths: tuple[str, ...] = ()
    fields: dict[Literal["id", "session", "value", "kind", "said"], Annotated[str, AfterValidator(path_or_constant)]] = Field(
        default_factory=dict
    )
    precedence: Annotated[tuple[TrustedKind, ...], Field(min_length=1)] = get_args(TrustedKind)
    success_from: dict[OutcomeKind, float] = Field(default_factory=dict)
    max_age_days: Annotated[float, Field(gt=0)] | None = None


class IngestConfig(Strict):
    """Which logs to read: files, folders or globs, in a given format or with the format of each record detected.

    `readers` are tried before the built-in ones, in their order. `fields` says where in a record a
    field of a trace is (a path as in `result.scores[0]`, or `=` and a constant); other names go to `info`.

    A file may expand to `largest_expansion` times its size, or to 64 MiB if that is more; the rest of it is refused. So is the
    rest of a file with more than `most_unreadable` records in quarantine, if they are over half of those that were read of it.

    Of a record larger than `largest_record_mib` MiB only the beginning is kept, in quarantine. Where most records are in
    quarantine, an ingest ends with exit code 2 and no run is trained on the rest, unless `allow_quarantine`.
    """

    paths: tuple[str, ...] = ()
    format: Annotated[str, AfterValidator(checked_format)] = AUTO
    readers: tuple[ReaderConfig, ...] = ()
    fields: dict[str, Annotated[str, AfterValidator(path_or_constant)]] = Field(default_factory=dict)
    outcomes: OutcomesConfig = OutcomesConfig()
    redaction: RedactionConfig = RedactionConfig()
    largest_record_mib: Annotated[int, Field(ge=1, le=1024)] = 64
    largest_expansion: Annotated[int, Field(ge=1, le=LARGEST_SETTING)] = LARGEST_EXPANSION
    most_unreadable: Annotated[int, Field(ge=1)] = 100_000
    allow_quarantine: bool = False
