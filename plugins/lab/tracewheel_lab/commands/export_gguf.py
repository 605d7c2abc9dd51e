"""`tracewheel export-gguf`: merged weights as one GGUF file for llama.cpp."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, DataError, FileOut

if TYPE_CHECKING:
    from tracewheel import Card


def options(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="DIR", help="output of `tracewheel export --format merged`, or such a folder")
    parser.add_argument("--name", metavar="NAME", help="the model's name (default: as it was exported, or the folder's)")
    parser.add_argument("--tokenizer", metavar="FILE", help="a GGUF base, whose tokenizer is copied")
    parser.add_argument("--type", choices=("q8_0", "q4_0"), help="round the weights; then they are gated again:")
    parser.add_argument("--profile", metavar="CONFIG", help="the profile, for --type")
    parser.add_argument("--curated", metavar="DIR", help="output of curation, whose held-out tasks are played")
    parser.add_argument(
        "--evaluation", metavar="DIR", help="output of `tracewheel evaluate` on them, of the policy as it was gated"
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="the GGUF file to write")


def run(options: Namespace) -> dict[str, Any]:
    """Convert a model.

    Raises:
        DataError: there is no such model, its prompt is gone, or it cannot be written as GGUF; the message says what can.
        WeightsError: its weights cannot be loaded.
    """
    from tracewheel import folder_of, prepare_environment, read_json, write_json
    from tracewheel_lab.gguf.model import write_gguf

    prepare_environment(None, debug=options.debug)
    folder = folder_of(options.model, "DIR")
    if (folder / "adapter_config.json").is_file():
        raise DataError(f"{folder}: is an adapter; give the output of `tracewheel export … --format merged`")
    record = folder / "export.json"
    known = read_json(record) if record.is_file() else {}
    name = options.name or known.get("name", folder.resolve().name)
    prompt, out = _prompt(folder, known.get("prompt")), Path(options.out)
    partial = out.with_name(f".partial-{out.name}")
    try:
        facts = write_gguf(folder, partial, name, Path(options.tokenizer) if options.tokenizer else None, options.type)
        if options.type:
            facts |= _gated(options, folder, out)
        prompt_file = out.with_suffix(".prompt.json")
        if prompt:
            write_json(prompt_file, prompt)
        else:
            prompt_file.unlink(missing_ok=True)  # of an earlier model of this name
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return {"out": options.out, "name": name, **facts, **({"prompt": prompt["digest"]} if prompt else {})}


def _prompt(folder: Path, digest: str | None) -> dict[str, Any] | None:
    """The prompt that a model is a pair with; None of one that was exported without.

    Raises:
        DataError: it is gone, or was changed since.
    """
    from tracewheel import read_json
    from tracewheel_lab.model_export.run_facts import PROMPT_FILE, checked

    path = folder / PROMPT_FILE
    if not path.is_file():
        if digest:
            raise DataError(f"{path}: is gone, and without it this is another policy than the gate judged; export it again")
        return None
    return checked(read_json(path), path)


def _gated(options: Namespace, folder: Path, out: Path) -> dict[str, Any]:
    """Gate the rounded weights and write their card; raises where they are proven worse."""
    from tracewheel import folder_of, resolve_config
    from tracewheel_lab.gguf.quantised import gate_rounded, write_card

    if not (options.profile and options.curated and options.evaluation):
        raise DataError("--type: rounded weights are gated again: give --profile, --curated and --evaluation")
    curated, gated = folder_of(options.curated, "--curated"), folder_of(options.evaluation, "--evaluation")
    result = gate_rounded(resolve_config(options.profile, [], None), folder, options.type, curated, gated)
    write_card(folder, out, options.type, result)
    return {"gate": result}


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel import Card

    rows = [(name, str(result[name])) for name in ("architecture", "dtype")]
    if gate := result.get("gate"):
        rows += [(f"greedy success, {name}", f"{gate[name]['greedy']:.3f}") for name in ("before", "after")]
    out = Path(result["out"])
    look_at = f"its card is {out.with_suffix('.md')}" if gate else "it is not quantised"
    if "prompt" in result:
        look_at += f"; it is a pair with {out.with_suffix('.prompt.json')}: play it under that prompt"
    return Card(f"{result['name']} written to {result['out']}", rows, look_at=look_at)


COMMAND = Command(
    "export-gguf", "write merged weights as one GGUF file for llama.cpp", options, run, card, FileOut("file", (".gguf",))
)
