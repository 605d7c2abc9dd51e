"""`examples/loop.py`: the loop by public functions alone writes what a run stores, to the byte."""

import ast
import runpy
import sys
from pathlib import Path

from tracewheel.core.fingerprint import digest_of

LOOP = Path(__file__).parents[2] / "examples" / "loop.py"


def test_the_loop_in_one_file_imports_the_public_names_alone():
    """So it does without Prefect, MLflow and DVC: the import contracts keep them out of the package."""
    found = [each for each in ast.walk(ast.parse(LOOP.read_text())) if isinstance(each, ast.Import | ast.ImportFrom)]
    modules = {each.module if isinstance(each, ast.ImportFrom) else name.name for each in found for name in each.names}
    assert {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names} == {"tracewheel"}


def test_the_loop_in_one_file_writes_the_folders_of_a_run(finished, profile, entries, tmp_path, monkeypatch, capsys):
    folder, _, summary = finished
    out = tmp_path / "loop"
    monkeypatch.setattr(sys, "argv", [str(LOOP), str(profile), "--out", str(out)])
    runpy.run_path(str(LOOP), run_name="__main__")
    made = [out / "ingested", out / "curated", out / "gate", *sorted((out / "warm_start").iterdir())]
    made += [stage for iteration in sorted((out / "iterations").iterdir()) for stage in sorted(iteration.iterdir())]
    made += [*sorted((out / "validation").iterdir()), *sorted((out / "held_out").iterdir())]
    assert len(made) >= 15
    stored = set(entries(folder).values())
    assert [str(each.relative_to(out)) for each in made if digest_of(each) not in stored] == []
    assert f"gate: {summary['gate']['verdict']}" in capsys.readouterr().out
