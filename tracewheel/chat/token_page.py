"""The reference conversation as a page for people: every token with its id, and whether the policy generated it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tracewheel.chat import reference
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.core.forks import segments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from transformers import PreTrainedTokenizerBase

    from tracewheel.chat.conversation import RenderedConversation
    from tracewheel.chat.template_check import TemplateCheck

TOKENS_A_LINE = 16


def token_page(
    tokenizer: PreTrainedTokenizerBase, check: TemplateCheck, template_options: Mapping[str, Any] | None = None
) -> str:
    """Markdown of the widest reference conversation that the template renders."""
    renderer = ChatRenderer(tokenizer, check.tool_format, template_options)
    kinds = [each.conversation for each in check.splitting]
    system, tools = check.renders["system"], "tools" in kinds
    if "thinking" in kinds:
        messages = reference.thinking(renderer.format.THINKING_KEY, tools=tools, system=system)
    elif tools:
        messages = reference.with_tools(system=system, parallel=check.renders["parallel_calls"])
    else:
        messages = reference.without_tools(system=system)
    return "\n".join(token_lines(renderer, renderer.conversation(messages, reference.TOOLS if tools else []))) + "\n"


def token_lines(renderer: ChatRenderer, rendered: RenderedConversation) -> Iterator[str]:
    """A table: flat position of a line's first token, mask, and the tokens as `text`; rows that fork say where from."""
    yield "| from | mask | tokens |"
    yield "|---:|:---:|---|"
    for start, stop, after in segments(rendered.forks, len(rendered.ids)):
        if start:
            yield f"| | | *a new row, which follows token {after}* |"
        places = range(start, stop)
        for mask, group in itertools.groupby(places, key=lambda at: rendered.mask[at]):
            run = list(group)
            for line in _lines(renderer, rendered.ids, run):
                yield f"| {line[0]} | {mask} | {' '.join(_shown(renderer, rendered.ids[at]) for at in line)} |"


def _lines(renderer: ChatRenderer, ids: list[int], run: list[int]) -> Iterator[list[int]]:
    """A run of tokens cut after line ends and after TOKENS_A_LINE tokens."""
    line: list[int] = []
    for at in run:
        line.append(at)
        if len(line) == TOKENS_A_LINE or renderer.decode([ids[at]]).endswith("\n"):
            yield line
            line = []
    if line:
        yield line


def _shown(renderer: ChatRenderer, token: int) -> str:
    text = renderer.decode([token]).replace("\n", "\\n").replace("|", "\\|").replace(" ", "·")
    return f"`` {text} ``" if "`" in text else f"`{text}`"
