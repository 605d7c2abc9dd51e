"""The replies of an endpoint, stored on disk as soon as they arrive, since they may have cost money.

A file of JSON lines. A line holds either a reply, with its episode and a hash of the conversation that it answers, or an
episode that has ended, whose replies are no longer needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tracewheel.engines.chat_reply import Message, Reply
from tracewheel.engines.reply_journal import ReplyJournal
from tracewheel.teacher.attempt import Attempt, EndpointEpisode, Speak

# Asks the endpoint for an episode's next reply.
Ask = Callable[[EndpointEpisode, list[Message], list[dict[str, Any]]], Reply]


class Journal(ReplyJournal):
    """The journal of a command that plays episodes.

    Attributes:
        ended: The episodes that have ended, by key.
    """

    def __init__(self, path: Path) -> None:
        self.ended: dict[str, Attempt] = {}
        super().__init__(path)

    def speaker(self, wanted: EndpointEpisode, ask: Ask) -> Speak:
        """The model's replies in one episode: the stored reply to the same conversation, else a new one."""
        return lambda messages, tools: self.reply(wanted.key, messages, tools, lambda: ask(wanted, messages, tools))

    def note(self, attempt: Attempt) -> None:
        """Store an episode that has ended; an unfinished one is continued another time."""
        if attempt.finished:
            self._write({"attempt": asdict(attempt)})
            self.ended[attempt.key] = attempt

    def _take_in(self, entry: dict[str, Any]) -> None:
        if "attempt" in entry:
            attempt = Attempt(**entry["attempt"])
            self.ended[attempt.key] = attempt
        else:
            super()._take_in(entry)
