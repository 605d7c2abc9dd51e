"""The check of a base's chat template, for the command and for the start of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracewheel.chat.formats import FORMATS, make_format
from tracewheel.chat.formats.detection import detect_format
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
    """The check in the format that the template writes; where it writes none, in one that it does not write."""
    try:
        name, _ = detect_format(tokenizer, {each: make_format(each) for each in FORMATS})
    except Exception as error:  # a template raises whatever its author chose
        check = replace(check_template(tokenizer, DEFAULT), tool_format="")
        return replace(check, trainable=False, reasons=[str(error)]) if check.trainable else check
    return check_template(tokenizer, name)
