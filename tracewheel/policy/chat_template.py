"""A chat template in a file of its own (`policy.chat_template`), used instead of the base's."""

from __future__ import annotations

from pathlib import Path

from tracewheel.config import PolicyConfig
from tracewheel.core.errors import ConfigError

TEMPLATE_NAME = "chat_template.jinja"  # as transformers and vLLM look for it in a model's folder


def read_template(path: str | Path) -> str:
    """The text of a template.

    Raises:
        ConfigError: the file is missing or is no text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"policy.chat_template: {path}: {error}; name a file with a Jinja template") from error


def write_template(policy: PolicyConfig, folder: Path) -> None:
    """Put the profile's own template, if it has one, among the files of a trained policy, which is of no use with another."""
    if policy.chat_template:
        (folder / TEMPLATE_NAME).write_text(read_template(policy.chat_template), encoding="utf-8")
