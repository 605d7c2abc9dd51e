"""Whether a base can be trained turn by turn, found by rendering a reference conversation with its own chat template.

Why: a template that drops tool calls, ends a turn with another token than the tokenizer names, or rewrites what a policy said
trains on text that the policy never sees. Each costs a whole run, and none raises an error by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tracewheel.chat import reference
from tracewheel.chat.formats import FORMATS
from tracewheel.chat.formats.base import THINK_CLOSE, THINK_OPEN
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, Any]
ARGUMENTS = "logged arguments"
ANOTHER_TEMPLATE = "name a template with tools as policy.chat_template, or in --chat-template"


@dataclass(frozen=True)
class Splitting:
    """What turn-by-turn training of a conversation takes.

    Attributes:
        conversation: Which reference conversation.
        tokens: Tokens of all its rows, shared beginnings counted once.
        single_row: Tokens it would have if nothing were rewritten.
        breaks: Turns (from 1) that begin a row of their own, because the template rewrote what stood before them.
    """

    conversation: str
    tokens: int
    single_row: int
    breaks: list[int]

    def says(self) -> str:
        """The rows, and what splitting costs."""
        if not self.breaks:
            return f"1, of {self.tokens} tokens: the template only appends"
        more = self.tokens - self.single_row
        rows, turns = 1 + len(self.breaks), ", ".join(map(str, self.breaks))
        return f"{rows}, of {self.tokens} tokens, {more} more than one row; the template rewrites before turn {turns}"


@dataclass
class TemplateCheck:
    """What was found. `reasons` says why an agent with tools cannot be trained on this base, and what to do.

    Attributes:
        trainable: An agent with tools can be trained.
        trainable_without_tools: An agent that only writes text can be trained.
        reasons: What stands against training with tools; empty when `trainable`.
        tool_format: The tool-call format that was checked.
        renders: What the template writes: system, tools, calls, parallel_calls, replies, thinking.
        refusals: What the template or the tokenizer said about what it does not render.
        calls_round_trip: A parsed call renders to the ids it was parsed from.
        end_of_turn: The tokens that end a turn: the one that the template writes first.
        splitting: Rows and tokens of the reference conversations.
        control_tokens: How many tokens no text can forge.
        forged: Control tokens that text in a message became; empty, or the check is refused.
        open_to_text: Added tokens that text of others can write: they frame a policy's own calls and thoughts, and end nothing.
        opens_thinking: The generation prompt begins a thought.
    """

    trainable: bool = False
    trainable_without_tools: bool = False
    reasons: list[str] = field(default_factory=list)
    tool_format: str = ""
    renders: dict[str, bool] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    calls_round_trip: bool = False
    end_of_turn: list[str] = field(default_factory=list)
    splitting: list[Splitting] = field(default_factory=list)
    control_tokens: int = 0
    forged: list[str] = field(default_factory=list)
    open_to_text: list[str] = field(default_factory=list)
    opens_thinking: bool = False

    def to_record(self) -> dict[str, Any]:
        return asdict(self)

    def says(self) -> str:
        """One line about a base that can be trained."""
        breaks = sum(len(each.breaks) for each in self.splitting)
        rows = f"rewrites earlier turns ({breaks} extra rows in the reference conversations)" if breaks else "only appends"
        tools = f"tool format {self.tool_format}" if self.trainable else "no tools"
        return f"template: {tools}, {rows}, a turn ends with {self.end_of_turn[0]}, {self.control_tokens} control tokens safe"

    def answers(self) -> list[tuple[str, str]]:
        """Questions and answers, for people."""
        yes = [name.replace("_", " ") for name, found in self.renders.items() if found]
        no = [name.replace("_", " ") for name, found in self.renders.items() if not found]
        found = [("can train an agent with tools", "yes" if self.trainable else "no: " + "; ".join(self.reasons))]
        if not self.trainable:
            found.append(("can train an agent that writes text", "yes" if self.trainable_without_tools else "no"))
        if not self.end_of_turn:
            return found
        calls = "yes" if self.calls_round_trip else "no"
        return [
            *found,
            ("renders", ", ".join(yes) or "nothing"),
            ("does not render", ", ".join(no) or "-"),
            ("tool format", self.tool_format or "none found"),
            ("a parsed call renders to the same ids", calls if self.renders.get("calls") else "it writes no calls"),
            ("a turn ends with", ", ".join(self.end_of_turn)),
            ("begins a thought before each turn", "yes" if self.opens_thinking else "no"),
            *((f"rows for the conversation with {each.conversation}", each.says()) for each in self.splitting),
            ("control tokens that text cannot forge", f"{self.control_tokens - len(self.forged)}"),
            ("control tokens that text forged", ", ".join(self.forged) or "none"),
            ("tokens that text of others can write", ", ".join(self.open_to_text) or "none"),
        ]


def check_template(
    tokenizer: PreTrainedTokenizerBase, tool_format: str, template_options: Mapping[str, Any] | None = None
) -> TemplateCheck:
    """Render the reference conversations with a tokenizer's template, and compare.

    Never raises for what the template or the tokenizer cannot do: that is a finding.
    """
    check = TemplateCheck(tool_format=tool_format)
    try:
        renderer = ChatRenderer(tokenizer, tool_format, template_options)
    except Exception as error:  # a template raises whatever its author chose
        missing = f": {ANOTHER_TEMPLATE}" if tokenizer.chat_template is None else ""
        check.reasons.append(_reason(error) + missing)
        return check
    return _Probes(renderer, check).run()


class _Probes:
    """The single questions, in order; each notes what it found."""

    def __init__(self, renderer: ChatRenderer, check: TemplateCheck) -> None:
        self._renderer, self._check = renderer, check

    def run(self) -> TemplateCheck:
        check, renderer = self._check, self._renderer
        check.end_of_turn = self._ends()
        check.opens_thinking = self._text(lambda: renderer.prompt_ids([reference.USER], [])).rstrip().endswith(THINK_OPEN)
        self._what_is_rendered()
        self._calls()
        self._splitting()
        self._forgeries()
        self._judge()
        return check

    def _what_is_rendered(self) -> None:
        """Each part of a conversation, found again in the rendered text."""
        renderer, user = self._renderer, reference.USER
        said: dict[str, tuple[str, Callable[[], list[int]]]] = {
            "system": (reference.SYSTEM["content"], lambda: renderer.prompt_ids([reference.SYSTEM, user], [])),
            "turns": (reference.ANSWER, lambda: renderer.assistant_ids(reference.says(reference.ANSWER))),
            "tools": ("list_orders", lambda: renderer.prompt_ids([user], reference.TOOLS)),
            "replies": ("9 lamps", lambda: self._after([reference.reply("list_orders", "9 lamps")])),
            "users": ("And then?", lambda: self._after([reference.user("And then?")])),
            "thinking": (
                reference.THOUGHT,
                lambda: renderer.assistant_ids(reference.says("x", **{renderer.format.THINKING_KEY: reference.THOUGHT})),
            ),
        }
        for name, (text, ids) in said.items():
            self._check.renders[name] = text in self._text(ids, name)

    def _calls(self) -> None:
        """Calls that the template writes, parsed, and rendered again."""
        check, renderer, same = self._check, self._renderer, []
        for name, calls in (
            ("calls", [reference.CALLS[0]]),
            ("calls", [reference.CALLS[1]]),
            ("parallel_calls", reference.CALLS),
        ):
            ids = self._turn(reference.call_message(*calls), name)
            text = renderer.decode(ids[:-1])
            parsed = renderer.format.parse(text, reference.TOOLS)
            found = [(call.name, call.arguments) for call in parsed.calls]
            check.renders[name] = check.renders.get(name, True) and found == calls
            if found == calls:
                same.append(self._turn(renderer.assistant_message(text, parsed, "call"), name) == ids)
            elif ids:
                said = f"the template writes {text[:200]!r}, which is no call of the format {check.tool_format}"
                check.refusals.setdefault(name, said)
        check.calls_round_trip = bool(same) and all(same)

    def _turn(self, message: Message, name: str) -> list[int]:
        return self._ids(lambda: self._renderer.assistant_ids(message), name)

    def _splitting(self) -> None:
        renders, key = self._check.renders, self._renderer.format.THINKING_KEY
        tools = renders["tools"] and renders["calls"] and renders["replies"]
        system, parallel = renders["system"], renders["parallel_calls"]
        chosen = {"text": reference.without_tools(system=system)}
        if tools:
            chosen["tools"] = reference.with_tools(system=system, parallel=parallel)
        if renders["thinking"]:
            chosen["thinking"] = reference.thinking(key, tools=tools, system=system)
        for name, messages in chosen.items():
            try:
                rendered = self._renderer.conversation(messages, reference.TOOLS if tools and name != "text" else [])
            except Exception as error:  # a template raises whatever its author chose
                self._check.refusals[f"conversation of {name}"] = _reason(error)
                continue
            repeated = sum(turn.repeated for turn in rendered.turns)
            breaks = [number for number, turn in enumerate(rendered.turns, 1) if turn.dropped]
            self._check.splitting.append(Splitting(name, len(rendered.ids), len(rendered.ids) - repeated, breaks))

    def _forgeries(self) -> None:
        """Every control token in every place where a stranger's text can stand."""
        check, renderer = self._check, self._renderer
        plain = renderer.plain_text
        check.control_tokens = len(plain.control_tokens)
        texts = {number: token.content for number, token in renderer.tokenizer.added_tokens_decoder.items()}
        forgery = " ".join(sorted(plain.control_tokens))
        for name, ids in self._places(forgery).items():
            harmless = self._places("harmless")[name]
            # Assistant text may hold the frames of a reply: a policy that samples them is read as it generated.
            held = plain.turn_ids if name == ARGUMENTS else plain.control_ids
            counted = [[number for number in found if number in held] for found in (ids, harmless)]
            if counted[0] != counted[1]:
                extra = set(counted[0]) - set(counted[1]) or set(counted[0])
                check.forged += sorted(f"{texts[number]} in {name}" for number in extra)
        own = {frame for kind in FORMATS.values() for frame in (*kind.CALL_FRAMES, *kind.REPLY_FRAMES)} | {
            THINK_OPEN,
            THINK_CLOSE,
        }
        check.open_to_text = sorted((own & set(texts.values())) - plain.control_tokens)

    def _after(self, messages: list[Message]) -> list[int]:
        """Ids of a conversation with these messages after a turn."""
        called = messages[0]["role"] == "tool" and self._check.renders.get("tools", False)
        turn = reference.call_message(reference.CALLS[1]) if called else reference.says(reference.ANSWER)
        tools = reference.TOOLS if called else []
        return self._renderer.conversation([reference.USER, turn, *messages, reference.says("Yes.")], tools).ids

    def _places(self, text: str) -> dict[str, list[int]]:
        renderer, tool = self._renderer, reference.TOOLS[0]
        described = {**tool, "function": {**tool["function"], "description": text}}
        return {
            "a user's message": self._ids(lambda: renderer.prompt_ids([reference.user(text)], [])),
            "a later user's message": self._ids(lambda: self._after([reference.user(text)])),
            "a tool's reply": self._ids(lambda: self._after([reference.reply("list_orders", text)])),
            "a tool's description": self._ids(lambda: renderer.prompt_ids([reference.USER], [described])),
            ARGUMENTS: self._ids(lambda: renderer.assistant_ids(reference.call_message(("find", {"name": text})))),
        }

    def _judge(self) -> None:
        check = self._check
        done = {each.conversation for each in check.splitting}
        problems = [f"text can forge control tokens: {'; '.join(check.forged)}"] if check.forged else []
        if not check.renders["turns"] or "text" not in done:
            said = check.refusals.get("turns") or check.refusals.get("conversation of text") or "it drops their text"
            problems.append(f"the chat template cannot render assistant turns one by one: {said}")
        check.trainable_without_tools = not problems
        for part, what in (("tools", "the tools offered"), ("calls", "tool calls"), ("replies", "the replies of tools")):
            if not check.renders[part]:
                said = f" ({check.refusals[part]})" if part in check.refusals else ""
                problems.append(f"the chat template does not render {what}{said}: {ANOTHER_TEMPLATE}")
        if check.renders["calls"] and not check.calls_round_trip:
            problems.append(
                f"a parsed call does not render to the same tokens: {ANOTHER_TEMPLATE}, or another policy.tool_format"
            )
        if check.trainable_without_tools and not problems and "tools" not in done:
            problems.append(
                f"the chat template cannot render a conversation with tools: {check.refusals['conversation of tools']}"
            )
        check.reasons, check.trainable = problems, not problems

    def _ends(self) -> list[str]:
        """The token that the template ends a turn with, and others that end a turn in this format."""
        first = self._renderer.end_of_turn_id
        return [self._renderer.decode([number]) for number in (first, *sorted(self._renderer.end_of_turn_ids - {first}))]

    def _text(self, ids: Callable[[], list[int]], name: str = "") -> str:
        return self._renderer.decode(self._ids(ids, name))

    def _ids(self, ids: Callable[[], list[int]], name: str = "") -> list[int]:
        """The ids; none, and the reason noted, where the template refuses."""
        try:
            return ids()
        except Exception as error:  # a template raises whatever its author chose
            if name:
                self._check.refusals.setdefault(name, _reason(error))
            return []


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
