"""What is logged of served conversations, without secrets and personal data, as ingest would store it."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracewheel.config import RedactionConfig
from tracewheel.core.errors import SecretError
from tracewheel.core.types import Trace
from tracewheel.gateway.exchange import Message
from tracewheel.traces.redaction.redactor import Redactor

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer

LOG = logging.getLogger(__name__)
SPELLED = ("messages", "tools", "info")  # what token ids spell; `info` holds the branches


class LogRedaction:
    """Redacts records before they are written. Its methods may be called from any thread.

    Token ids spell the text: where it is redacted there are none, and `info.redacted` says how many places of which kind were.
    A record from which a value cannot be removed is not logged.

    Args:
        config: What to redact, as for ingest.
        renderer: Spells token ids.

    Raises:
        ConfigError: pseudonyms need a key, and there is none.
    """

    def __init__(self, config: RedactionConfig, renderer: ChatRenderer) -> None:
        self._redactor, self._renderer, self._lock = Redactor(config), renderer, threading.Lock()

    def conversation(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """A conversation's record, itself where there is nothing to redact; None where it must not be written."""
        trace = Trace(**{**record, "tokens": None})
        with self._lock:
            if (made := self._redacted(trace)) is None:
                return None
            redacted, counts = made
            same = all(getattr(redacted, name) is getattr(trace, name) for name in SPELLED)
            if same and not self._is_spelled(record["tokens"]["token_ids"]):
                kept = record["tokens"]
            else:
                kept, counts = None, counts + Counter({"token_ids": 1})
        info = {**redacted.info, "redacted": dict(counts)} if counts else redacted.info
        return {**{name: getattr(redacted, name) for name in record}, "tokens": kept, "info": info}

    def shadow(self, record: dict[str, Any], before: Sequence[Message]) -> dict[str, Any] | None:
        """The record of a reply in the shadow, after the messages before it; as `conversation`."""
        said = [record["sent"], record["shadow"]]
        trace = Trace(record["turn"], [*before, *said], [], None, record["session"], record["user"], None, None, None, "", 0)
        with self._lock:
            if (made := self._redacted(trace)) is None:
                return None
            record = {**record, "session": made[0].session, "user": made[0].user}
            sent, shadow = made[0].messages[-2:]
            if [sent, shadow] == said and not self._is_spelled(record["token_ids"]):
                return record
        counts = {**made[1], "token_ids": 1}
        return {**record, "sent": sent, "shadow": shadow, "token_ids": None, "logprobs": None, "redacted": counts}

    def _redacted(self, trace: Trace) -> tuple[Trace, Counter[str]] | None:
        before = len(self._redactor.learned)
        try:
            made = self._redactor.trace(trace)
        except SecretError as error:
            LOG.warning("%s is not logged: %s", trace.id, error)
            return None
        if len(self._redactor.learned) > before:
            self._redactor.look_for_learned()
        return made

    def _is_spelled(self, ids: list[int]) -> bool:
        """Whether ids spell what is redacted, as may tools that were offered earlier and stand in no message."""
        try:
            return bool(self._redactor.record_bytes(self._renderer.decode(ids).encode("utf-8", "replace"))[1])
        except SecretError:
            return True
