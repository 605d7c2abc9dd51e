"""The check of a base's chat template, for the command and for the start of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tracewheel.chat.formats import FORMATS, make_format
from tracewheel.chat.formats.detection import detect_format
from tracewheel.chat.template_check import TemplateCheck, check_template
from tracewheel.chat.token_page import token_page
from tracewheel.chat.tokenizer import load_tokenizer
from tracewheel.policy.adapters import base_folder
from tracewheel.policy.chat_template import read_template

DEFAULT = "hermes"  # what text is rendered with where a template writes no calls


@dataclass(frozen=True)
class Checked:
    """What to check.

    Attributes:
        base: Folder, Hugging Face id or GGUF file.
        tool_format: The tool-call format; found from the template where None.
        chat_template: A file with the template to check instead of the base's own.
        template_options: Options that the template is given.
    """

    base: str
    tool_format: str | None = None
    chat_template: str | None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)


def check_base(given: Checked, *, page: bool = False) -> tuple[TemplateCheck, str | None]:
    """Check a base's chat template; with `page`, also the reference conversation, token by token, in Markdown.

    Raises:
        ConfigError: there is no such template file or tool-call format.
        DataError: there is no such base.
    """
    tokenizer = load_tokenizer(base_folder(given.base))
    if given.chat_template is not None:
        tokenizer.chat_template = read_template(given.chat_template)
    name, problem = given.tool_format, ""
    if name is None:
        try:
            name, _ = detect_format(tokenizer, {each: make_format(each) for each in FORMATS})
        except Exception as error:  # a template raises whatever its author chose
            problem = str(error)
    else:
        make_format(name)
    check = check_template(tokenizer, name or DEFAULT, given.template_options)
    shown = token_page(tokenizer, check, given.template_options) if page and check.trainable_without_tools else None
    if name is None:
        check.tool_format = ""
        if check.trainable:
            check.trainable, check.reasons = False, [problem]
    return check, shown
