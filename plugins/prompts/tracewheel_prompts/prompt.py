"""A prompt: system message, descriptions of tools, demonstrations. It is data, and counts by value."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import Field

from tracewheel import Strict, content_hash, fresh_copy

Message = dict[str, Any]
Text = Annotated[str, Field(max_length=20_000)]
HEADING = "Requests that were handled well:"
TOOL = "tool:"
SYSTEM, DEMONSTRATIONS = "system", "demonstrations"


class Prompt(Strict):
    r"""What a policy is told beside the user's words.

    >>> Prompt(system="Tidy up.", demonstrations=("Request: a",)).said
    'Tidy up.\n\nRequests that were handled well:\n\nRequest: a'

    Attributes:
        system: The system message.
        tools: Descriptions of tools by name; the others keep theirs.
        demonstrations: Episodes as text, shown below the system message.
    """

    system: Text = ""
    tools: dict[str, Text] = Field(default_factory=dict)
    demonstrations: Annotated[tuple[Text, ...], Field(max_length=16)] = ()

    @property
    def digest(self) -> str:
        """Equal for equal prompts."""
        return content_hash(self.model_dump(mode="json"), length=16)

    def to_record(self) -> dict[str, Any]:
        """The prompt with its digest."""
        return {**self.model_dump(mode="json"), "digest": self.digest}

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """What `to_record` gave.

        Raises:
            ValueError: it is no prompt, or not the one of its digest.
        """
        values = dict(record) if isinstance(record, Mapping) else {}
        digest = values.pop("digest", None)
        found = cls.model_validate(values)
        if found.digest != digest:
            raise ValueError(f"the prompt was changed: its digest is {found.digest}, not {digest}")
        return found

    @property
    def said(self) -> str:
        """The system message with the demonstrations."""
        return "\n\n".join([self.system, HEADING, *self.demonstrations] if self.demonstrations else [self.system])

    def described(self, tools: Iterable[Message]) -> list[Message]:
        """Tools with this prompt's descriptions; names and parameters stay."""
        return [
            {**tool, "function": {**tool["function"], "description": self.tools[tool["function"]["name"]]}}
            if tool["function"]["name"] in self.tools
            else tool
            for tool in tools
        ]

    def serve(self, messages: list[Message], tools: list[Message]) -> tuple[list[Message], list[Message]]:
        """A program's request with this prompt in place of the system messages that it begins with."""
        begins = next((at for at, one in enumerate(messages) if one["role"] not in ("system", "developer")), len(messages))
        system = [{"role": "system", "content": self.said}] if self.said else []
        return [*system, *messages[begins:]], self.described(tools)

    def environment(self, kind: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """The section `environment` of a profile that has this prompt around an environment."""
        inner = {"kind": kind, "args": fresh_copy(dict(args))}
        return {"kind": "prompted", "args": {"environment": inner, "prompt": self.model_dump(mode="json")}}


def shown_episode(messages: Iterable[Message], longest: int) -> str:
    """A verified episode as text: the request, the calls with their replies, the last words.

    Args:
        messages: Of the episode, in OpenAI chat format.
        longest: The most characters of one reply.
    """
    lines = []
    for message in messages:
        content = message.get("content") or ""
        if message["role"] == "user":
            lines.append(f"Request: {content}")
        elif message["role"] == "tool":
            lines.append(f"Reply: {cut(content, longest)}")
        elif message["role"] == "assistant":
            lines += [f"Answer: {content}"] if content else []
            lines += [f"Call: {called(call)}" for call in message.get("tool_calls") or ()]
    return "\n".join(lines)


def called(call: Mapping[str, Any]) -> str:
    """A call as in `read_file(path="/a")`."""
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
        words = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    except (ValueError, AttributeError, RecursionError):
        words = str(function["arguments"])
    return f"{function['name']}({words})"


def cut(text: str, longest: int) -> str:
    """A text's beginning; what is left out is counted."""
    return text if len(text) <= longest else f"{text[:longest]} … ({len(text) - longest} more characters)"
