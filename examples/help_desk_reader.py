"""A reader of one's own: a help desk logs each conversation as one object, with the tools' results inside the agent's turns.

    tracewheel ingest logs/ --reader examples.help_desk_reader:HelpDeskReader --out data/ingested

or in a profile, with arguments:

    ingest:
      readers: [{kind: "examples.help_desk_reader:HelpDeskReader", args: {solved: [closed, refunded]}}]
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tracewheel import InvalidRecord, Place, RawTrace

ROLES = {"customer": "user", "agent": "assistant"}


class HelpDeskReader:
    """Reads `{"ticket", "status", "dialogue": [{"who", "said", "did"}]}`.

    Args:
        solved: The states of a ticket that count as success.
    """

    name = "help_desk"

    def __init__(self, solved: Sequence[str] = ("closed",)) -> None:
        self._solved = tuple(solved)

    def recognises(self, value: Any) -> bool:
        """Whether this is one ticket. It is asked about every record of every file, so it must not raise."""
        return isinstance(value, dict) and "ticket" in value and isinstance(value.get("dialogue"), list)

    def read(self, value: Any, place: Place) -> RawTrace:
        """The conversation of one ticket; the ids of calls are made afterwards."""
        messages: list[dict[str, Any]] = []
        for number, turn in enumerate(value["dialogue"]):
            if turn["who"] not in ROLES:
                raise InvalidRecord("unknown role", f"turn {number} is by {turn['who']!r}; known: {', '.join(ROLES)}")
            messages.append({"role": ROLES[turn["who"]], "content": turn["said"]})
            if "did" in turn:
                did = turn["did"]
                function = {"name": did["tool"], "arguments": json.dumps(did["with"])}
                messages[-1]["tool_calls"] = [{"id": None, "type": "function", "function": function}]
                messages.append({"role": "tool", "content": did["gave"]})
        outcome = None if value.get("status") in (None, "open") else float(value["status"] in self._solved)
        return RawTrace(messages, id=value["ticket"], outcome=outcome, created=value.get("opened"))
