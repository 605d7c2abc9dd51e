"""Versions of the agent in the logs: its system prompt and tools. Those of another version than today's are off-policy for it.

Today's are the environment's; in a recorded environment, which has what was logged, those of the latest trace. A log need not
hold the prompt or the tools: what it does not hold is no difference. Nor are numbers in a prompt, such as a date.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from tracewheel.core.kind_table import inner_kinds
from tracewheel.core.kinds import parse_kind
from tracewheel.core.types import canonical_json, content_hash
from tracewheel.environments import member_for, open_environment
from tracewheel.environments.recorded.environment import PREFIX as RECORDED

if TYPE_CHECKING:
    import pyarrow

OtherVersions = Literal["keep", "leave_out", "rewrite"]
Row = dict[str, Any]
NAMES = ("messages", "tools", "tools_inferred", "created", "environment")
ANY = ""  # kind of environment
DIGITS = 8  # of a version's digest
SHOWN = 20  # versions in the report, the latest
FEW = 4
_NUMBER = re.compile(r"\d+")
_DECODER = json.JSONDecoder()


class Version(NamedTuple):
    """A system prompt and tools, as they are compared; None where the log does not hold them."""

    prompt: str | None
    tools: str | None

    @classmethod
    def of(cls, prompt: str | None, tools: Iterable[Mapping[str, Any]]) -> Self:
        """The version with this prompt and these tools."""
        by_name = sorted(tools, key=lambda tool: str(tool["function"]["name"]))
        return cls(_plain(prompt), canonical_json(by_name) if by_name else None)

    def differs(self, other: Version) -> list[str]:
        """What both hold, and not alike: "the system prompt", "the tools"."""
        pairs = (("the system prompt", self.prompt, other.prompt), ("the tools", self.tools, other.tools))
        return [name for name, own, its in pairs if own is not None and its is not None and own != its]


class Today(NamedTuple):
    """Today's version, and the prompt and tools themselves, for traces that are rewritten."""

    version: Version
    prompt: str
    tools: list[dict[str, Any]]


def _system_prompt(messages: str) -> str | None:
    """What a conversation begins with that is said by the system; the rest of its JSON text is not read."""
    texts: list[str] = []
    place = messages.find("{")
    while place >= 0:
        message, end = _DECODER.raw_decode(messages, place)
        if message["role"] not in ("system", "developer"):
            break
        texts.append(message.get("content") or "")
        place = messages.find("{", end)
    return "\n\n".join(texts) if texts else None


@dataclass
class Versions:
    """The versions of the traces of one curation.

    Args:
        today: Today's by the kind of environment (`todays`); empty: the latest trace's.
        how: What becomes of traces of another version.
    """

    today: dict[str, Today]
    how: OtherVersions
    _seen: dict[Version, list[str]] = field(default_factory=dict)
    _differs: dict[Version, list[str]] = field(default_factory=dict)
    _left_out: int = 0

    def take(self, table: pyarrow.Table) -> pyarrow.Table:
        """The traces of a table as curation uses them: those of another version are counted, and left out or rewritten."""
        import pyarrow

        columns = (table.column(name).to_pylist() for name in NAMES)
        rows: list[Row] = [dict(zip(NAMES, values, strict=True)) for values in zip(*columns, strict=True)]
        versions = list(map(_version_of, rows))
        if rows and not self.today:
            _, latest = max((row["created"] or "", place) for place, row in enumerate(rows))
            prompt, tools = _system_prompt(rows[latest]["messages"]), json.loads(rows[latest]["tools"])
            self.today[ANY] = Today(versions[latest], prompt or "", tools)
        stays = [self._takes(row, version) for row, version in zip(rows, versions, strict=True)]
        if self.how == "keep" or not self._seen:
            return table
        for name in ("messages", "tools"):
            text = pyarrow.array([row[name] for row in rows], type=table.schema.field(name).type)
            table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), text)
        return table.filter(pyarrow.array(stays))

    def _takes(self, row: Row, version: Version) -> bool:
        """Whether a trace is used; it is rewritten where that is wanted."""
        today = self.today.get(ANY) or self.today.get(_kind_of(row))
        differs = version.differs(today.version) if today else []
        if today is None or not differs:
            return True
        self._seen.setdefault(version, []).append(row["created"] or "")
        self._differs[version] = differs
        stays = self.how == "keep" or (self.how == "rewrite" and _rewrite(row, today))
        self._left_out += not stays
        return stays

    def report(self) -> dict[str, Any]:
        """What was of another version than today's; nothing where all is of today's.

        The numbers of `traces` and `versions`, what was done (`how`) and how many were `left_out`; of the latest versions
        (`seen`) the number of traces, the times of the first and the last one, and what differs; and `says`, in words.
        """
        if not self._seen:
            return {}
        seen = [
            {"version": content_hash(list(version), DIGITS), "traces": len(times), "first": min(times), "last": max(times)}
            | {"differs": self._differs[version]}
            for version, times in sorted(self._seen.items(), key=lambda item: (max(item[1]), str(item[0])))
        ]
        times = [time for found in self._seen.values() for time in found]
        names = " and ".join(sorted({name for found in self._differs.values() for name in found}))
        how = f"{names[:1].upper()}{names[1:]} {'differ' if names.count('the ') > 1 or names == 'the tools' else 'differs'}"
        often = " from trace to trace" if len(times) > FEW and len(seen) > len(times) / 2 else " from today's"
        done = {"keep": "kept as they are", "leave_out": "left out", "rewrite": f"rewritten, {self._left_out} of them left out"}
        last = f", the last of {max(times)}," if max(times) else ""
        says = (
            f"{how}{often} in {len(times)} traces{last} which are off-policy for it; they are {done[self.how]} "
            "(curation.other_versions)."
        )
        about = {"traces": len(times), "versions": len(seen), "how": self.how, "left_out": self._left_out}
        return {**about, "seen": seen[-SHOWN:], "says": says}


def _version_of(row: Row) -> Version:
    offered = Version(None, None) if row["tools_inferred"] else _with_tools(row["tools"])
    return offered._replace(prompt=_plain(_system_prompt(row["messages"])))


def _plain(prompt: str | None) -> str | None:
    return None if prompt is None else _NUMBER.sub("#", prompt.strip())


@functools.lru_cache(maxsize=256)
def _with_tools(text: str) -> Version:
    """A version with these tools, of which a log has few."""
    return Version.of(None, json.loads(text))


def _kind_of(row: Row) -> str:
    logged = json.loads(row["environment"]) if row["environment"] else None
    return str(logged.get("kind")) if isinstance(logged, dict) else ANY


def todays(spec: str) -> dict[str, Today]:
    """Today's versions by the kinds of an environment's members, or the environment's own for all; none of a recorded one."""
    if spec.startswith(RECORDED):
        return {}
    found = {}
    with open_environment(spec) as environment:
        kinds = [parse_kind(text).kind for text in inner_kinds(spec)] if environment.kind == "several" else [environment.kind]
        for kind in kinds:
            if world := member_for(environment, kind):
                prompt, tools = world.system_prompt, world.tools()
                found[kind] = Today(Version.of(prompt or None, tools), prompt, tools)
    return found


def _rewrite(row: Row, today: Today) -> bool:
    """Give a row today's prompt and tools; False where it calls a tool that is not offered today."""
    names = {tool["function"]["name"] for tool in today.tools}
    messages = json.loads(row["messages"])
    called = {call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()}
    if names and not called <= names:
        return False
    begins = next((at for at, message in enumerate(messages) if message["role"] not in ("system", "developer")), len(messages))
    if begins and today.version.prompt is not None:
        row["messages"] = json.dumps([{"role": "system", "content": today.prompt}, *messages[begins:]], ensure_ascii=False)
    if names:
        row["tools"] = json.dumps(today.tools, ensure_ascii=False)
    return True
