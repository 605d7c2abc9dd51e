"""Judges' models behind OpenAI-compatible endpoints, with a journal that keeps their replies and their budget."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tracewheel import InfrastructureError, InputError, OpenAiChat, content_hash
from tracewheel_graders.judges.asking import JudgeFailure, JudgeReply
from tracewheel_graders.judges.criteria import JudgeModel, Limits
from tracewheel_graders.judges.journal import JudgeJournal


class JudgeEndpoint:
    """Asks models, each through one client with its limits, from any number of threads and processes with one journal.

    Args:
        journal: The journal's file.
        limits: The most that may be asked and spent.
    """

    def __init__(self, journal: str, limits: Limits) -> None:
        self._journal = JudgeJournal(Path(journal), limits.calls, limits.money)
        self._clients: dict[str, OpenAiChat] = {}
        self._making = threading.Lock()
        self._end = ExitStack()
        atexit.register(self._end.close)

    def ask(self, model: JudgeModel, messages: Sequence[dict[str, Any]], schema: dict[str, Any], seed: int) -> JudgeReply:
        """The journal's reply to this, or else the model's, which the journal then keeps.

        Raises:
            InputError: the endpoint, the model or the key is wrong.
            JudgeFailure: there is no reply, or the budget is reached.
        """
        formed = response_format(model, schema)
        asked = content_hash([model.identity, list(messages), formed, seed], 32)
        try:
            reply = self._journal.reply(asked, lambda: self._client(model, formed).complete(list(messages), [], seed))
        except InputError:
            raise
        except InfrastructureError as error:
            raise JudgeFailure(f"judge {model.model}: {error}") from error
        return JudgeReply(reply.message.get("content") or "", reply.ended_by)

    def _client(self, model: JudgeModel, formed: dict[str, Any] | None) -> OpenAiChat:
        config = model.endpoint_config
        if formed:
            config = config.model_copy(update={"extra": {**config.extra, "response_format": formed}})
        key = config.model_dump_json()
        with self._making:
            if key not in self._clients:
                self._clients[key] = self._end.enter_context(OpenAiChat(config, spending=self._journal))
            return self._clients[key]


def response_format(model: JudgeModel, schema: dict[str, Any]) -> dict[str, Any] | None:
    """OpenAI's `response_format` for a model; None where it is only asked."""
    if model.structured == "json_schema":
        return {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": schema}}
    return {"type": "json_object"} if model.structured == "json_object" else None
