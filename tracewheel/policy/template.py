"""The check of a base's chat template, for the command and for the start of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracewheel.chat.formats import FORMATS
from tracewheel.chat.template_check import TemplateCheck, check_template
from tracewheel.chat.token_page import token_page
from tracewheel.chat.tokenizer import load_tokenizer
from tracewheel.policy.adapters import base_folder
from tracewheel.policy.chat_template import read_template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DEFAULT = "hermes"


def check_base(
    base: str, tool_format: str | None = None, chat_template: str | None = None, *, page: bool = False
) -> tuple[TemplateCheck, str | None]:
    """Check a base's chat template; with `page`, also the reference conversation, token by token, in Markdown.

    Args:
        base: Folder, Hugging Face id or GGUF file.
        tool_format: The tool-call format; found from the template where None.
        chat_template: A file with the template to check instead of the base's own.
        page: Whether to show the reference conversation.

    Raises:
        ConfigError: there is no such template file or tool-call format.
        DataError: there is no such base.
    """
    tokenizer = load_tokenizer(base_folder(base))
    if chat_template is not None:
        tokenizer.chat_template = read_template(chat_template)
    check = check_template(tokenizer, tool_format) if tool_format else _check_formats(tokenizer)
    return check, token_page(tokenizer, check) if page and check.trainable_without_tools else None


def _check_formats(tokenizer: PreTrainedTokenizerBase) -> TemplateCheck:
    """The check in the first format whose calls the template writes and the format reads; otherwise in the first of all."""
    names = sorted(FORMATS, key=lambda name: (name != DEFAULT, name))
    first = check_template(tokenizer, names[0])
    if first.trainable or not first.trainable_without_tools:
        return first
    others = (check_template(tokenizer, name) for name in names[1:])
    return next((check for check in others if check.trainable), replace(first, tool_format=""))
