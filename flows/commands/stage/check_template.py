"""`tracewheel stage check-template`: whether a base's chat template and tokenizer can be trained turn by turn."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flows.commands.command import Command
from flows.console.look import Card
from tracewheel.core.errors import DataError, UntrainableBase


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="folder, Hugging Face id or GGUF file, as policy.base")
    parser.add_argument("--chat-template", metavar="FILE", help="a template to check instead of the model's own")
    parser.add_argument("--tool-format", metavar="NAME", help="default: found from the template")
    parser.add_argument("--show", metavar="FILE", help="write the reference conversation, token by token with its mask")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Check a model's template.

    Raises:
        UntrainableBase: an agent with tools cannot be trained on it.
        ConfigError: there is no such template file or tool-call format.
        DataError: there is no such model.
    """
    from flows.setup import prepare_environment

    prepare_environment(None, debug=options.debug)
    from tracewheel.core.store import write_whole
    from tracewheel.policy.template import Checked, check_base

    given = Checked(options.model, options.tool_format, options.chat_template)
    check, page = check_base(given, page=bool(options.show))
    if options.show and page is not None:
        file, first = Path(options.show), page.partition("\n")[0]
        if file.exists() and not file.read_bytes().startswith(first.encode()):
            raise DataError(f"--show {file}: exists and is no page of check-template; give another name")
        write_whole(file, page)
    shown = Card(f"Chat template of {options.model}", check.answers())
    result = {"model": options.model, **check.to_record(), "show": shown}
    if not check.trainable:
        raise UntrainableBase(f"{options.model} cannot train an agent with tools: {'; '.join(check.reasons)}", result)
    return result


COMMAND = Command(
    "stage check-template", "whether a model's chat template and tokenizer can be trained turn by turn", add_options, run
)
