"""`tracewheel check-template`: whether a base's chat template and tokenizer can be trained turn by turn."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError, UntrainableBase

if TYPE_CHECKING:
    from tracewheel.chat.template_check import TemplateCheck


def add_check_template_command(commands: Any, exit_codes: str) -> None:
    """The command line of `check-template`."""
    summary = "whether a model's chat template and tokenizer can be trained turn by turn"
    parser = commands.add_parser("check-template", help=summary, description=f"{summary}.", epilog=exit_codes)
    parser.set_defaults(command="flows.commands.check_template:check_template")
    parser.add_argument("model", metavar="MODEL", help="folder, Hugging Face id or GGUF file, as policy.base")
    parser.add_argument("--chat-template", metavar="FILE", help="a template to check instead of the model's own")
    parser.add_argument("--tool-format", metavar="NAME", help="default: found from the template")
    parser.add_argument("--show", metavar="FILE", help="write the reference conversation, token by token with its mask")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--debug", action="store_true", help="show stack traces and the libraries' logs")


def check_template(options: argparse.Namespace) -> dict[str, Any]:
    """Check a model's template.

    Raises:
        UntrainableBase: an agent with tools cannot be trained on it.
        ConfigError: there is no such template file or tool-call format.
        DataError: there is no such model.
    """
    from flows.setup import prepare_environment

    prepare_environment(None, debug=options.debug)
    from tracewheel.policy.template import Checked, check_base

    given = Checked(options.model, options.tool_format, options.chat_template)
    check, page = check_base(given, page=bool(options.show))
    if options.show and page is not None:
        from pathlib import Path

        from tracewheel.core.store import write_whole

        file, first = Path(options.show), page.partition("\n")[0]
        if file.exists() and not file.read_bytes().startswith(first.encode()):
            raise DataError(f"--show {file}: exists and is no page of check-template; give another name")
        write_whole(file, page)
    record = {"model": options.model, **check.to_record()}
    shown = record if options.json else {"show": lambda: show_check(options.model, check)}
    if not check.trainable:
        raise UntrainableBase(f"{options.model} cannot train an agent with tools: {'; '.join(check.reasons)}", shown)
    return shown


def show_check(model: str, check: TemplateCheck) -> None:
    """Print what was found, one line a question."""
    from rich.table import Table

    from flows.console.look import result_console

    table = Table(title=f"Chat template of {model}", show_header=False)
    for question, answer in check.answers():
        table.add_row(question, answer)
    result_console().print(table)
