"""`tracewheel export`: a policy as an adapter or as merged weights, each with a model card."""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel import Card, Command, DataError, Writes, digest_of, produce_whole, read_json, write_json

FORMATS = ("adapter", "merged")
RECORD, MODEL_CARD = "export.json", "README.md"
VERSION = re.compile(r"(?:models:/)?(?P<name>[^/@]+)(?:/(?P<version>\d+)|@(?P<alias>[\w-]+))")
ADAPTER, MODEL = "adapter", "model"  # where a run has its weights
OWN_FILES = ("adapter.json", "adapter_config.json", "adapter_model.safetensors", "probe.json", "chat_template.jinja")


@dataclass(frozen=True)
class Source:
    """What is exported.

    Attributes:
        weights: Their folder.
        base: The model that they belong to.
        run: The run that trained them, where its record is at hand.
        record: Where that run's profile and prompt are read: its record, or what MLflow has of it.
    """

    weights: Path
    base: str
    run: Path | None
    record: Path | None


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "policy",
        metavar="RUN|ADAPTER|MODEL_VERSION",
        help="a run's folder, an adapter's folder, or NAME/VERSION or NAME@champion",
    )
    parser.add_argument("--format", choices=FORMATS, required=True, help="what to write")
    parser.add_argument("--dtype", choices=("float32",), help="the type of merged weights (default: that of the base)")
    parser.add_argument("--base", metavar="MODEL", help="the base, where what is exported does not name it, or it has moved")
    parser.add_argument(
        "--base-name", metavar="HUB_ID", help="the base's name on the Hub, for the card (default: as the profile names it)"
    )
    parser.add_argument(
        "--dataset", action="append", default=[], metavar="HUB_ID", help="public data that it learnt from, for the card"
    )
    parser.add_argument("--name", metavar="NAME", help="the model's name (default: from the base and the run)")
    parser.add_argument(
        "--run", metavar="DIR", help="the run that trained it, for the card, where it is not beside the adapter"
    )
    parser.add_argument(
        "--uri", metavar="URI", help="the MLflow store of a MODEL_VERSION (default: that of a run without settings)"
    )
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="an adapter of plain PEFT that was trained on --base: check and record it",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaced if it is an earlier export")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Export a policy; `--out` is complete or as it was.

    Raises:
        AdapterMismatchError: the adapter was trained for another base.
        InfrastructureError: a MODEL_VERSION is not in the registry, or its files are others than those registered.
        DataError: there is no such policy, it learnt from somebody who was forgotten, or it cannot be written in this format;
            the message says what can.
        WeightsError: its files cannot be loaded.
    """
    from tracewheel import prepare_environment

    prepare_environment(None, debug=options.debug)
    with tempfile.TemporaryDirectory(prefix="tracewheel-export-") as folder:
        source = find_source(options, Path(folder))
        _refuse_forgotten(options.policy, source)
        record = produce_whole(Path(options.out), lambda out: _write(options, source, out))
    return {"out": options.out, **record}


def find_source(options: argparse.Namespace, folder: Path) -> Source:
    """What a person named.

    Args:
        options: `policy`, `base`, `run`, `uri`.
        folder: Where a registered version is fetched to.

    Raises:
        DataError: it is none of the three, or its base is not known.
    """
    from tracewheel import weights_folder
    from tracewheel_lab.model_export.run_facts import is_run, run_facts

    named, run, record = Path(options.policy), Path(options.run) if options.run else None, None
    if not named.exists():
        weights, record = _fetch(options, folder)
    elif is_run(named):
        run = run or named
        found = [named / kind for kind in (ADAPTER, MODEL) if (named / kind).is_dir()]
        if not found:
            raise DataError(f"{named}: the run left no adapter and no model, so there is nothing to export")
        weights = found[0]
    elif options.adopt:
        weights = _adopt(named, options.base, folder / ADAPTER)
    else:
        weights = weights_folder(named)
    if run is None and is_run(weights.resolve().parent):
        run = weights.resolve().parent
    base = options.base or (run_facts(run).config["policy"]["base"] if run else _base_in(weights))
    if not base:
        raise DataError(f"{options.policy}: does not name its base; give --base")
    return Source(weights, base, run, run or record)


def _adopt(folder: Path, base: str | None, out: Path) -> Path:
    """Copy the weights and the config of an adapter that plain PEFT wrote, with the hash of the base that a person names.

    Raises:
        DataError: no base is named, or the folder is no adapter.
        WeightsError: the adapter does not fit the base.
    """
    from tracewheel import (
        PolicyConfig,
        PolicyRef,
        base_folder,
        base_hash,
        check_adapter_files,
        load_for_generation,
        write_probe,
    )

    if base is None:
        raise DataError("--adopt: name the model that the adapter was trained on with --base")
    check_adapter_files(folder, base_folder(base))
    out.mkdir()
    for name in OWN_FILES:
        if (folder / name).is_file() and name.startswith("adapter_"):
            shutil.copyfile(folder / name, out / name)
    write_json(out / "adapter.json", {"base_hash": base_hash(base), "version": 0})
    whole = PolicyConfig(base=base, dtype="float32", device="cpu")
    write_probe(load_for_generation(whole, PolicyRef(base, str(out))), out)
    return out


def _refuse_forgotten(policy: str, source: Source) -> None:
    """Refuse weights that learnt from somebody whom the work folder around them, or the usual one, has forgotten.

    Raises:
        DataError: they did.
    """
    from tracewheel import RetrainConfig, digests_of, list_with_adapter

    around = [parent for path in (source.weights, source.run) if path for parent in path.resolve().parents]
    usual = Path(RetrainConfig.model_fields["work_dir"].default)
    if found := list_with_adapter(digests_of(source.weights).values(), dict.fromkeys([*around, usual])):
        raise DataError(
            f"{policy}: this policy learnt from somebody who was forgotten since ({found}), so it is not exported; "
            "train without them (`tracewheel retrain PROFILE`), export that run, and delete this policy's files"
        )


def _base_in(weights: Path) -> str | None:
    config = weights / "adapter_config.json"
    return read_json(config).get("base_model_name_or_path") if config.is_file() else None


def _fetch(options: argparse.Namespace, folder: Path) -> tuple[Path, Path | None]:
    """Fetch a registered version, check that its files are those that were registered, and what MLflow has of its run."""
    found = VERSION.fullmatch(options.policy)
    if found is None:
        raise DataError(
            f"{options.policy}: neither a folder nor a version of the registry; name a run's folder, an adapter's folder, or "
            "NAME/VERSION or NAME@champion"
        )
    from tracewheel import RetrainConfig, fetch_record, fetch_registered

    usual: str = RetrainConfig.model_fields["tracking"].get_default(call_default_factory=True).uri
    asked = (options.uri or usual, found["name"], found["version"], found["alias"])
    return fetch_registered(*asked, folder), None if options.run else fetch_record(*asked, folder / "record")


def _write(options: argparse.Namespace, source: Source, out: Path) -> dict[str, Any]:
    from tracewheel import base_hash, policy_of
    from tracewheel_lab.model_export.base_card import base_license, hub_name
    from tracewheel_lab.model_export.merged_weights import write_merged
    from tracewheel_lab.model_export.model_card import Exported, model_card
    from tracewheel_lab.model_export.run_facts import PROMPT_FILE, digest_file, prompt_of, run_facts

    policy = policy_of(source.weights, source.base)
    run = run_facts(source.run) if source.run else None
    short = Path(source.base).stem if source.base.endswith(".gguf") else Path(source.base).name
    digest = digest_of(source.weights)
    name = options.name or f"{short}-{run.run_id if run else digest[:8]}"
    form = read_json(source.weights / "adapter_config.json") if policy.adapter else {}
    facts: dict[str, Any] = {"dtype": "float32"}
    if options.format == "adapter":
        if policy.adapter is None:
            raise DataError(f"{options.policy}: a whole model has no adapter; export it with --format merged")
        _copy_adapter(source.weights, out, options.base_name or hub_name(source.base) or short)
        facts = {"dtype": _adapter_dtype(source.weights)}
    else:
        facts = write_merged(policy, source.base, out, options.dtype)
    prompt = prompt_of(source.record) if source.record else None
    if prompt:
        write_json(out / PROMPT_FILE, prompt)
    files = {path.name: digest_file(path) for path in sorted(out.iterdir())}
    exported = Exported(
        name=name,
        form=options.format,
        base=short,
        hub_base=options.base_name or hub_name(source.base),
        base_hash=base_hash(source.base),
        license=base_license(source.base),
        digest=digest,
        dtype=facts["dtype"],
        adapter=form,
        files=files,
        prompt=prompt["digest"] if prompt else None,
        datasets=tuple(options.dataset),
    )
    (out / MODEL_CARD).write_text(model_card(exported, run), encoding="utf-8")
    record = {
        "format": options.format,
        "name": name,
        "policy_version": policy.version,
        "policy_digest": digest,
        "base_hash": exported.base_hash,
        "license": exported.license,
        "run_id": run.run_id if run else None,
        "verdict": run.gate.get("verdict") if run else None,
        "prompt": exported.prompt,
        "prompt_known": source.record is not None,
        **facts,
        "files": {**files, MODEL_CARD: digest_file(out / MODEL_CARD)},
    }
    write_json(out / RECORD, record)
    return record


def _copy_adapter(weights: Path, out: Path, base: str) -> None:
    """Copy an adapter's own files; its config names the base without a place on this machine."""
    import json

    for name in OWN_FILES:
        if (weights / name).is_file():
            shutil.copyfile(weights / name, out / name)
    config = {**read_json(weights / "adapter_config.json"), "base_model_name_or_path": base}
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _adapter_dtype(weights: Path) -> str:
    from tracewheel_lab.model_export.merged_weights import DTYPES, types_in

    return ", ".join(sorted({DTYPES[found] for found in types_in(weights / "adapter_model.safetensors")}))


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    unknown = result["license"] == "unknown"
    refused = result["verdict"] not in (None, "promoted")
    notes = ["the licence of the base is unknown: find it out before you pass this on"] if unknown else []
    notes += ["it is a pair with prompt.json: play it under that prompt"] if result["prompt"] else []
    notes += [] if result["prompt_known"] else ["its run is not at hand: name it with --run if a prompt belongs to it"]
    notes += [f"the gate's verdict was '{result['verdict']}'"] if refused else []
    lost = {"rounding": f"{result['rounding'] / result['effect']:.1%} of what training changed"} if result.get("effect") else {}
    named = {
        name: result[name] for name in ("dtype", "license", "run_id", "verdict", "policy_digest", "prompt") if result[name]
    }
    return Card(
        f"{result['name']} written to {result['out']} as {result['format']}",
        [(name.replace("_", " "), str(value)) for name, value in (named | lost).items()],
        look_at="; ".join([*notes, f"the model card is {result['out']}/README.md"]),
        tone="warning" if notes else "good",
        next=[f"tracewheel lineage {options.policy}"],
    )


COMMAND = Command(
    "export",
    "write an adapter or merged weights, with a model card",
    add_options,
    run,
    card,
    Writes(
        (MODEL_CARD, RECORD),
        ("*.safetensors", "*.json", "tokenizer*", "chat_template*", "vocab.*", "merges.txt", "spiece.model"),
    ),
)
