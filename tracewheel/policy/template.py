"""The check of a base's chat template, for the command and for the start of a run."""

from __future__ import annotations

from tracewheel.chat.template_check import TemplateCheck, check_template
from tracewheel.chat.token_page import token_page
from tracewheel.chat.tokenizer import load_tokenizer
from tracewheel.policy.adapters import base_folder


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
    check = check_template(tokenizer, tool_format or "hermes")
    return check, token_page(tokenizer, check) if page and check.trainable_without_tools else None
