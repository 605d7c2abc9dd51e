"""What screening knows of a batch: counts and places, no conversations. Profiles of accepted batches are its history."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tracewheel_screening.injection.rules import AGENT, JUDGE
from tracewheel_screening.injection.screen import suspicions

__all__ = ["AGENT", "JUDGE", "Instruction", "find_instructions", "read_text"]


@dataclass(frozen=True)
class Instruction:
    """An instruction that was found.

    Attributes:
        kind: `judge` or `agent`.
        rule: What it asks for.
        file: The log file of the trace.
        line: Its line there.
        place: Where in the trace: `message 3 (tool)`, or a field.
        hidden: How it was hidden, or "".
        excerpt: The text around it, as stored (redacted).
    """

    kind: str
    rule: str
    file: str
    line: int
    place: str
    hidden: str
    excerpt: str

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def find_instructions(trace: Mapping[str, Any]) -> list[Instruction]:
    """The instructions in a row of `traces.parquet`; of each place at most one of each kind."""
    found = []
    for place, text in _texts(trace):
        for kind, rule, hidden, excerpt in read_text(text):
            file, line = str(trace["source_file"]), int(trace["source_line"])
            found.append(Instruction(kind, rule, file, line, place, hidden, excerpt))
    return found


def read_text(text: str) -> list[tuple[str, str, str, str]]:
    """Kind, rule, way of hiding and excerpt of the instructions in a text; at most one of each kind, to the judge first."""
    found = {one.kind: (one.kind, one.rule, one.hidden, one.excerpt) for one in reversed(suspicions(text, prose=False))}
    return [found[kind] for kind in (JUDGE, AGENT) if kind in found]


def _texts(trace: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of a trace that neither operator nor agent wrote, with their places."""
    messages = trace["messages"]
    for number, message in enumerate(json.loads(messages) if isinstance(messages, str) else messages, start=1):
        if message["role"] in ("user", "tool") and isinstance(message.get("content"), str):
            yield f"message {number} ({message['role']})", message["content"]
    for name in ("user", "session", "task"):
        if isinstance(trace.get(name), str):
            yield f"field {name}", trace[name]


KINDS = ("user", "session", "task", "template", "conversation")
# Of each kind the most frequent names are kept; concentration is about the largest shares.
NAMES_KEPT, NAME_LENGTH = 200, 80
USERS_KEPT = 50_000
EXAMPLES = 5
CLOCK_ERROR = timedelta(days=1)
PLACEHOLDERS = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`|\S*[/@#_\d]\S*")


@dataclass
class BatchProfile:
    """A batch in figures.

    Attributes:
        read, kept, duplicates, quarantined: Its records, by what became of them.
        by_reason: Records in quarantine by reason.
        by_format: Kept traces by format.
        replayed: Kept traces that were replayed.
        other_replies: Of these, those whose tools replied otherwise than in the log.
        rewarded: Of the others, those with a logged reward and a verified outcome.
        disagreeing: Of these, those where the two differ.
        names: Kind of a name (`KINDS`) to its most frequent names with their number of traces.
        named: Kind to the number of traces that have one.
        different: Kind to the number of different names.
        users: Hashes of the users, at most `USERS_KEPT`.
        judge, agent: Traces with an instruction to the judge, and to the agent.
        judge_texts: Hashes of the former's texts without what changes in them, with their number of traces.
        future: Traces from later than a day after the screening.
        examples: Check to places in the logs, at most `EXAMPLES` each.
    """

    read: int = 0
    kept: int = 0
    duplicates: int = 0
    quarantined: int = 0
    by_reason: dict[str, int] = field(default_factory=dict)
    by_format: dict[str, int] = field(default_factory=dict)
    replayed: int = 0
    other_replies: int = 0
    rewarded: int = 0
    disagreeing: int = 0
    names: dict[str, dict[str, int]] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    different: dict[str, int] = field(default_factory=dict)
    users: list[str] = field(default_factory=list)
    judge: int = 0
    agent: int = 0
    judge_texts: dict[str, int] = field(default_factory=dict)
    future: int = 0
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> BatchProfile:
        """The inverse of `to_record`; unknown fields of a later version are left out."""
        return cls(**{name: value for name, value in record.items() if name in cls.__dataclass_fields__})


class Profiler:
    """Makes a profile of rows, batch by batch.

    Args:
        now: When the batch is screened, with a time zone.
    """

    def __init__(self, now: datetime) -> None:
        self._latest = now + CLOCK_ERROR
        self._counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        self.profile = BatchProfile()

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take rows of traces with what `replayed_rows` adds."""
        for row in rows:
            self.profile.kept += 1
            self.profile.by_format[row["format"]] = self.profile.by_format.get(row["format"], 0) + 1
            self._replay(row)
            self._names(row)
            self._instructions(row)
            if _is_after(row.get("created"), self._latest):
                self.profile.future += 1
                self._example("future", row, f"created {row['created']}")

    def quarantine(self, record: Mapping[str, Any]) -> None:
        """Take a record of the quarantine."""
        reason = record["reason"]
        self.profile.quarantined += 1
        self.profile.by_reason[reason] = self.profile.by_reason.get(reason, 0) + 1
        place = {"source_file": record["file"], "source_line": record["line"]}
        self._example("quarantine", place, f"{reason}: {record['detail']}"[: NAME_LENGTH * 2])

    def finish(self, read: int, duplicates: int) -> BatchProfile:
        """The profile, with the records read and the duplicates among them."""
        profile = self.profile
        profile.read, profile.duplicates = read, duplicates
        for kind, counts in self._counts.items():
            profile.named[kind], profile.different[kind] = counts.total(), len(counts)
            ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:NAMES_KEPT]
            profile.names[kind] = {name[:NAME_LENGTH]: count for name, count in ranked}
        profile.users = sorted(map(short_hash, self._counts["user"]))[:USERS_KEPT]
        return profile

    def _replay(self, row: Mapping[str, Any]) -> None:
        if row["dropped"]:
            return
        profile = self.profile
        profile.replayed += 1
        if row["observation_drift"]:
            profile.other_replies += 1
            self._example("replies", row, "a tool replied otherwise than when it is called again")
        elif _is_number(row["outcome"]) and _is_number(row["success"]):
            profile.rewarded += 1
            if row["reward_drift"]:
                profile.disagreeing += 1
                self._example("rewards", row, f"logged reward {row['outcome']:g}, verified {row['success']:g}")

    def _names(self, row: Mapping[str, Any]) -> None:
        messages = json.loads(row["messages"]) if isinstance(row["messages"], str) else row["messages"]
        prompt = next((message["content"] for message in messages if message["role"] == "user"), None)
        template = template_of(prompt) if isinstance(prompt, str) else None
        said = hashlib.sha256()
        for message in messages:
            calls = [call["function"] for call in message.get("tool_calls") or ()]
            said.update(json.dumps([message["role"], message.get("content"), calls], sort_keys=True).encode())
        found = {
            "user": row.get("user"),
            "session": row.get("session"),
            "task": row.get("fingerprint") or row.get("task"),
            "template": template,
            "conversation": said.hexdigest()[:16],
        }
        for kind, name in found.items():
            if isinstance(name, str) and name:
                self._counts[kind][name] += 1

    def _instructions(self, row: Mapping[str, Any]) -> None:
        found = find_instructions(row)
        for kind in (JUDGE, AGENT):
            mine = [item for item in found if item.kind == kind]
            if not mine:
                continue
            setattr(self.profile, kind, getattr(self.profile, kind) + 1)
            first = mine[0]
            if kind == JUDGE and len(self.profile.judge_texts) < NAMES_KEPT:
                text = short_hash(template_of(first.excerpt))
                self.profile.judge_texts[text] = self.profile.judge_texts.get(text, 0) + 1
            hidden = f", hidden by {first.hidden}" if first.hidden else ""
            self._example(kind, row, f"{first.place}, {first.rule}{hidden}: {first.excerpt}")

    def _example(self, check: str, row: Mapping[str, Any], says: str) -> None:
        known = self.profile.examples.setdefault(check, [])
        if len(known) < EXAMPLES:
            known.append({"file": str(row["source_file"]), "line": int(row["source_line"]), "says": says})


def template_of(prompt: str) -> str:
    """A prompt without what changes from one to the next: quotations, numbers, paths and addresses."""
    return " ".join(PLACEHOLDERS.sub("…", prompt[:2000].lower()).split())[:NAME_LENGTH]


def short_hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _is_after(created: Any, latest: datetime) -> bool:
    if not isinstance(created, str):
        return False
    try:
        time = datetime.fromisoformat(created)
    except ValueError:
        return False
    return (time.replace(tzinfo=latest.tzinfo) if time.tzinfo is None else time) > latest


def _is_number(value: Any) -> bool:
    return value is not None and value == value
