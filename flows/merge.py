"""`tracewheel merge`: several adapters into one, kept only when it holds up on the validation split."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.arguments import folder_of
from flows.setup import prepare_environment, resolve_config
from tracewheel.config import EvaluateSections, MergeConfig, MergeSections, RetrainConfig
from tracewheel.core.errors import ConfigError, DataError, GateRefused
from tracewheel.core.store import produce_whole

MERGED = "merged"
SETTINGS = ("method", "weight", "density", "space", "rank")


def merge(options: argparse.Namespace) -> dict[str, Any]:
    """Merge adapters of one base, evaluate the merge and its parts, and keep it when it is not worse than the best part.

    Raises:
        AdapterMismatchError: an adapter was made for another base.
        ConfigError: an option does not fit.
        DataError: a folder is missing, or there is nothing to evaluate on.
        GateRefused: the merge is worse than one of its parts; nothing is written.
    """
    config = resolve_config(options.config, options.overrides, options.run_dir)
    config.require("policy.base")
    prepare_environment(None, debug=options.debug)
    settings = merge_settings(options)
    folders = dict(named(pair) for pair in options.adapters)
    if len(folders) != len(options.adapters):
        raise DataError("--adapter: each needs a name of its own")
    if MERGED in folders:
        raise DataError(f"--adapter {MERGED}=…: that is the name of the result; give the part another")
    if bool(options.curated) == options.unevaluated:
        raise DataError("a merge is evaluated before it is used: give --curated DIR, or --unevaluated to do without")
    result = produce_whole(Path(options.out), lambda out: merge_into(config, folders, settings, options, out))
    return {"out": options.out, **result}


def merge_into(
    config: RetrainConfig, folders: dict[str, str], settings: MergeConfig, options: argparse.Namespace, out: Path
) -> dict[str, Any]:
    """Write the merge to `out`, and beside it what the validation split says."""
    from tracewheel.policy.adapters import policy_of
    from tracewheel.policy.merge import Part, merge

    refs = {name: policy_of(folder_of(folder, f"--adapter {name}"), config.policy.base) for name, folder in folders.items()}
    start = policy_of(folder_of(options.start, "--start"), config.policy.base) if options.start else None
    wholes = [name for name, ref in {**refs, **({"--start": start} if start else {})}.items() if ref.adapter is None]
    if wholes:
        raise DataError(f"{', '.join(wholes)}: a whole model; only adapters can be merged")
    begun = Path(start.adapter) if start and start.adapter else None
    parts = [Part(name, Path(str(ref.adapter)), begun) for name, ref in refs.items()]
    version = max(ref.version for ref in refs.values())
    record = merge(MergeSections.of(config), parts, settings, out, onto=begun, version=version)
    if options.unevaluated:
        return {**record, "evaluated": False}
    rates = evaluate_all(
        EvaluateSections.of(config), Path(options.curated), {**refs, MERGED: policy_of(out, config.policy.base)}, out
    )
    return judged(record, rates, out)


def evaluate_all(config: EvaluateSections, curated: Path, policies: dict[str, Any], out: Path) -> dict[str, float]:
    """Each policy's success on the validation split; the evaluations lie in `out/validation`."""
    from tracewheel.curation.curated_folder import load_tasks
    from tracewheel.evaluation.evaluate import evaluate
    from tracewheel.sampling.schedule import VALIDATION_SAMPLES, evaluation_seed, validation_rate

    tasks, seed = load_tasks(curated, "validation"), evaluation_seed(config.seed, "validation")
    rates = {}
    for name, policy in policies.items():
        folder = out / "validation" / name
        rates[name] = validation_rate(evaluate(config, policy, tasks, folder, samples=VALIDATION_SAMPLES, seed=seed))
    return rates


def judged(record: dict[str, Any], rates: dict[str, float], out: Path) -> dict[str, Any]:
    """The result with the comparison, which is also written down; a merge that is worse than a part is refused."""
    from tracewheel.core.files import write_json
    from tracewheel.policy.merge import compare

    comparison = compare(rates[MERGED], {name: rate for name, rate in rates.items() if name != MERGED})
    result = {**record, "evaluated": True, **{name: value for name, value in comparison.items() if name != "parts"}}
    if not comparison["accepted"]:
        reason = f"the merge reaches {comparison['rate']:.3f} on the validation split, {comparison['best_part']} alone"
        raise GateRefused(f"{reason} {comparison['best_part_rate']:.3f}", {**result, "rates": rates})
    write_json(out / "comparison.json", comparison)
    return {**result, "rates": rates}


def merge_settings(options: argparse.Namespace) -> MergeConfig:
    """How to merge, by the options that were given."""
    given = {name: value for name in SETTINGS if (value := getattr(options, name)) is not None}
    try:
        return MergeConfig.model_validate(given)
    except ValidationError as error:
        problems = "; ".join(f"--{problem['loc'][0]}: {problem['msg']}" for problem in error.errors())
        raise ConfigError(problems) from error


def named(pair: str) -> tuple[str, str]:
    """Name and folder of `NAME=DIR`."""
    name, separator, folder = pair.partition("=")
    if not separator or not name or "/" in name or name.startswith("."):
        raise DataError(f"--adapter {pair}: expected NAME=DIR, the name without a slash")
    return name, folder
