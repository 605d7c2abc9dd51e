"""A simulated user behind an OpenAI-compatible endpoint.

The model gets the user's brief and speaks as the assistant; what the agent says comes as the user. The agent never sees the
brief, and the model sees of the episode only what the agent says.
"""

from __future__ import annotations

import atexit
import functools
import re
from contextlib import ExitStack
from pathlib import Path

from tracewheel.config import EndpointConfig
from tracewheel.core.types import content_hash
from tracewheel.engines.chat_reply import Message, Reply
from tracewheel.engines.openai_chat import OpenAiChat
from tracewheel.engines.reply_journal import ReplyJournal
from tracewheel.environments.users.base import UserBrief, UserTurn

GOODBYE = "[goodbye]"
RULES = f"""
Write one short message at a time, as the customer writes it, and nothing else. Say what you know only when you are asked for
it. Do not make up anything that is not said here; if you are asked for something else, say that you do not know. You are not
the assistant: do not offer help and do not carry out requests. When you are told that your request is done or refused, or
when the conversation leads nowhere, write only {GOODBYE}."""
GREETING = "Hello. What can we do for you?"
THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


class EndpointUserArgs(EndpointConfig):
    """The endpoint, as for a teacher, and where its replies are kept.

    With a `journal` (a file), a reply to the same conversation of the same task is asked for and paid for once, by however
    many episodes and runs.
    """

    journal: str | None = None
    max_turn_tokens: int = 256
    temperature: float = 0.7


class EndpointUser:
    """A user that is a model. All users of a process with the same settings share one client, with its limits and budget.

    An endpoint that does not answer raises, so that the episode counts as failed by the machinery; a message that is cut off
    or calls a tool is the user's mistake.

    Example:
        environment: {kind: refund_desk, args: {user: {kind: endpoint, args: {endpoint: "http://localhost:8000/v1", model: m}}}}
    """

    kind = "endpoint"
    repeatable = False
    Args = EndpointUserArgs

    def __init__(self, args: EndpointUserArgs) -> None:
        self._line = _line(args.model_dump_json())

    def begin(self, brief: UserBrief) -> None:
        self._episode = content_hash([brief.instruction, brief.prompt, brief.seed])
        self._messages: list[Message] = [
            {"role": "system", "content": brief.instruction + "\n" + RULES},
            {"role": "user", "content": GREETING},
            {"role": "assistant", "content": brief.prompt},
        ]

    def resume(self, brief: UserBrief, talk: list[list[str]]) -> None:
        self.begin(brief)
        for said, answer in talk:
            self._messages += [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]

    def reply(self, said: str) -> UserTurn:
        """The model's answer.

        Raises:
            InputError: the endpoint, the model or the key is wrong.
            InfrastructureError: the endpoint gives no usable answer.
        """
        self._messages.append({"role": "user", "content": said})
        reply = self._line.ask(self._episode, self._messages)
        text = THINKING.sub("", reply.message["content"] or "").strip()
        self._messages.append({"role": "assistant", "content": text})
        if reply.message.get("tool_calls"):
            return UserTurn(text, problem="the user answers as an assistant: it calls a tool")
        if reply.ended_by == "length":
            return UserTurn(text, problem="the user's message is cut off: raise the user's max_turn_tokens")
        if GOODBYE in text.lower():
            return UserTurn(text, goodbye=True)
        return UserTurn(text)


class _Line:
    """The client and the journal that users with the same settings share."""

    def __init__(self, args: EndpointUserArgs) -> None:
        self._end = ExitStack()
        self._journal = self._end.enter_context(ReplyJournal(Path(args.journal))) if args.journal else None
        config = EndpointConfig(**args.model_dump(exclude={"journal"}))
        self._chat = self._end.enter_context(OpenAiChat(config, spent=self._journal.spent if self._journal else 0.0))
        atexit.register(self._end.close)

    def ask(self, episode: str, messages: list[Message]) -> Reply:
        """The model's next message; the same seed for the same conversation of the same episode."""
        seed = int(content_hash([episode, messages], 8), 16)

        def complete() -> Reply:
            return self._chat.complete(messages, [], seed)

        return self._journal.reply(episode, messages, [], complete) if self._journal else complete()


@functools.lru_cache(maxsize=8)
def _line(settings: str) -> _Line:
    return _Line(EndpointUserArgs.model_validate_json(settings))
