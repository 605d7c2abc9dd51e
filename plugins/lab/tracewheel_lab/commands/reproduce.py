"""`tracewheel runs reproduce`: a finished run made again in a clean clone, and compared with the first stage by stage."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, ConfigError, DataError, NotReproduced
from tracewheel_lab.formats import PAGE, format_options, ids_option, in_format

if TYPE_CHECKING:
    from tracewheel import FinishedRun, Section
    from tracewheel_lab.reproduce.checkout import Code
    from tracewheel_lab.reproduce.stages import StageResult

STAGES = (
    "ingest", "curate", "champion", "warm_start", "rollout", "collect", "score", "rate_trials", "teach", "solutions",
    "update", "go_back",
    "evaluate", "audit", "gate",
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder, a work folder (its latest complete run), or an id")
    ids_option(parser)
    parser.add_argument(
        "--code", choices=("recorded", "here"), default="recorded", help="default: the run's commit and changes"
    )
    parser.add_argument("--repository", metavar="DIR", help="a clone that has the run's commit (default: that of the package)")
    parser.add_argument(
        "--environment",
        choices=("here", "new"),
        default="here",
        help="this interpreter (default), or a new one from the run's lock",
    )
    parser.add_argument(
        "--logs", action="append", default=[], metavar="PATH", help="where the logs lie now, if they were moved"
    )
    parser.add_argument(
        "--stages", choices=STAGES, metavar="STAGE", help=f"only up to the last of this stage: {', '.join(STAGES)}"
    )
    parser.add_argument("--folder", metavar="DIR", help="where to make it, an empty or new folder, which stays")
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder also where all is equal")
    format_options(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Make the run again, and compare.

    Raises:
        DataError: the run's code, data or parents are not to be had.
        InfrastructureError: the run that was made again failed.
        NotReproduced: it is not the same bit by bit.
    """
    from tracewheel import FinishedRun, run_named

    first = FinishedRun(run_named(options.run, options.run_dir))
    with _folder(options) as out:
        found = _made_again(first, options, out)
        result = in_format(options, found, title_of(found), sections_of(found))
        if found["verdict"] == "equal":
            if not options.folder and not options.keep:
                shutil.rmtree(out)
            return result
        raise NotReproduced(f"run {first.run_id}: {found['says']}", result, within=found["verdict"] == "within tolerance")


@contextlib.contextmanager
def _folder(options: argparse.Namespace) -> Iterator[Path]:
    """An empty folder for the run; a temporary one is deleted where the run could not be made."""
    if options.folder:
        out = Path(options.folder).resolve()
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise DataError(f"--folder {out}: is not empty; give an empty or a new folder")
        out.mkdir(parents=True, exist_ok=True)
        yield out
        return
    out = Path(tempfile.mkdtemp(prefix="tracewheel-reproduce-")).resolve()
    try:
        yield out
    except NotReproduced:
        raise
    except BaseException:
        if not options.keep:
            shutil.rmtree(out, ignore_errors=True)
        raise


def _made_again(run: FinishedRun, options: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Make the run, and compare."""
    from tracewheel import begin_again
    from tracewheel_lab.reproduce.checkout import build_environment, check_out, code_here
    from tracewheel_lab.reproduce.data_files import bring_base, bring_files
    from tracewheel_lab.reproduce.rerun import make_again
    from tracewheel_lab.reproduce.stages import compare_stages

    if run.settings["rollout"].get("mode") == "async":
        _note("look at: the run was asynchronous, and what its workers sampled depends on time: it parts at a rollout")
    stages = _stages_up_to(run, options.stages)
    code = code_here(run) if options.code == "here" else check_out(run, out, _repository(options))
    says = [*code.says, *bring_files(run.settings, code.folder), *bring_base(run, code.folder)]
    says += begin_again(run, out, code.folder, options.logs)
    python = str(build_environment(run, out / "environment")) if options.environment == "new" else sys.executable
    for sentence in says:
        _note(sentence)
    again = make_again(run, out, code.folder, root=code.root, python=python, stages=stages, say=lambda line: _note(f"  {line}"))
    results = compare_stages(run, again, stages if stages < len(run.entries) else None)
    verdict = _verdict(results)
    first = next((item for item in results if item.state not in ("equal", "same values", "not compared")), None)
    return {
        "run": run.run_id,
        "folder": str(out),
        "code": {"kind": options.code, "commit": code.commit},
        "environment": options.environment,
        "notes": says,
        "verdict": verdict,
        "says": _says(verdict, results, first),
        "stages": [item.to_record() for item in results],
        "first": first.label if first else None,
        "why": _why(run, code, python, results, first) if first or any(item.same_key is False for item in results) else [],
    }


def _stages_up_to(run: FinishedRun, stage: str | None) -> int:
    """How many of the run's entries to make.

    Raises:
        ConfigError: the run has no such stage.
    """
    places = [place for place, entry in enumerate(run.entries, start=1) if stage is None or entry.stage == stage]
    if not places:
        known = ", ".join(dict.fromkeys(entry.stage for entry in run.entries))
        raise ConfigError(f"--stages {stage}: run {run.run_id} has none; its stages are {known}")
    return places[-1]


def _repository(options: argparse.Namespace) -> Path | None:
    if options.repository and not Path(options.repository).is_dir():
        raise DataError(f"--repository {options.repository}: no such folder")
    return Path(options.repository) if options.repository else None


def _verdict(results: Sequence[StageResult]) -> str:
    states = {item.state for item in results}
    if states <= {"equal"}:
        return "equal"
    return "within tolerance" if states <= {"equal", "same values", "within tolerance", "not compared"} else "parts"


def _says(verdict: str, results: Sequence[StageResult], first: StageResult | None) -> str:
    equal = sum(item.state == "equal" for item in results)
    if verdict == "equal":
        return f"all {equal} stages are equal bit by bit"
    where = f"; the first that is not is {first.label}" if first else ""
    counts = ", ".join(
        f"{sum(item.state == state for item in results)} {state}" for state in dict.fromkeys(r.state for r in results)
    )
    return f"{'within tolerance' if verdict != 'parts' else 'they part'}: of {len(results)} stages {counts}{where}"


def _why(run: FinishedRun, code: Code, python: str, results: Sequence[StageResult], first: StageResult | None) -> list[str]:
    """What is known to differ between the two, that of the first stage that differs in front."""
    from tracewheel import stage_files
    from tracewheel_lab.reproduce.causes import changed_code, environment_differences
    from tracewheel_lab.reproduce.rerun import lineage_here

    why: list[str] = []
    other = next((item for item in results if item.same_key is False), None)
    stage = first or other
    before: Mapping[str, Any] = run.lineage
    git = before.get("git") or {}
    if stage is not None and code.kind == "here" and git.get("commit"):
        found = changed_code(git["commit"], stage_files(stage.stage, run.config))
        why += [f"code of {stage.label} since {git['commit'][:12]}: {line}" for line in found]
        if git.get("changed"):
            why.append("code: the run had changes beyond its commit, so some of these may have been in it")
    if stage is not None:
        why += [
            f"{stage.label}: {row['name']} {row['values'][0]} → {row['values'][1]}"
            for row in stage.made
            if row["name"] != "code"
        ]
    why += environment_differences(before, lineage_here(run, python))
    if not why and first is not None:
        why.append("nothing that is recorded differs: the stage computes otherwise each time, or something unrecorded differs")
    return why


COMMAND = Command(
    "runs reproduce",
    "make a finished run again in a clean clone, and say whether every stage is the same, or where they part and why",
    add_options,
    run,
    writes=PAGE,
)


Found = Mapping[str, Any]
FILES_SHOWN = 6


def title_of(found: Found) -> str:
    """The page's title."""
    return f"Run {found['run']} made again: {found['says']}"


def sections_of(found: Found) -> list[Section]:
    """What `tracewheel runs reproduce` found, in sections."""
    from tracewheel import Section, Table

    rows = [
        [
            item["label"],
            item["state"],
            item["before"][:12],
            item["after"][:12] or "–",
            *(_seconds(value) for value in item["seconds"]),
        ]
        for item in found["stages"]
    ]
    headings = ("stage", "outcome", "digest", "digest again", "seconds", "seconds again")
    sections = [Section("Stages, in the order of the run", parts=[Table(headings, rows)])]
    if parted := [item for item in found["stages"] if item["files"] or item["state"] == "not made"]:
        sections.insert(0, _first(parted[0], found))
    elif other := [item["label"] for item in found["stages"] if item["same_key"] is False]:
        changed = f"Made by other code, settings or packages than in the run, with the same output: {', '.join(other)}."
        sections.insert(0, Section("What differs all the same", [changed, *(f"{why}." for why in found["why"])]))
    if found["notes"]:
        sections.append(Section("What it was made with", found["notes"]))
    if found["verdict"] != "equal":
        sections.append(Section("Where to look", [f"The run that was made again is in {found['folder']}."]))
    return sections


def _first(item: Found, found: Found) -> Section:
    """The first stage that is not equal: what differs in it, and why."""
    from tracewheel import Section, Table

    sentences = [f"Why, as far as it is known: {why}" for why in found["why"]]
    if item["state"] == "not made":
        return Section(f"The first stage that differs: {item['label']}", ["It was not made.", *sentences])
    if item["same_key"] is False:
        sentences.insert(0, "It was made by other code, settings or packages, or from other inputs, than in the run.")
    elif item["same_key"]:
        sentences.insert(0, "It was made by the same code and from the same inputs as in the run.")
    if item["tolerance"]:
        sentences.append(f"Tolerance of this stage: {item['tolerance']}.")
    rows = [_file(file) for file in item["files"][:FILES_SHOWN]]
    table = Table(("file", "first place", "in the run", "made again", "values", "largest difference"), rows)
    return Section(f"The first stage that differs: {item['label']} ({item['state']})", sentences, [table])


def _file(file: Found) -> list[str]:
    if file["same_values"]:
        return [file["file"], "the same values, written otherwise", "", "", "", ""]
    count = str(file["count"] or "") + (f" of {file['of']}" if file["of"] else "")
    largest = "–" if file["largest"] is None else f"{file['largest']:.3g}"
    return [file["file"], file["place"], file["before"], file["after"], count, largest]


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
