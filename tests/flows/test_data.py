"""`tracewheel data report`, from the command line."""

import json

import pytest

from flows.cli import build_parser


def test_a_data_command_has_help_with_the_exit_codes(capsys):
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(["data", "report", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "--json" in shown and "2 bad input" in shown


def test_the_quality_report_is_a_page_and_json(run, made, tmp_path):
    code, out, _ = run("data", "report", made[1], "--traces", made[0], "--out", tmp_path / "quality", "--json")
    assert code == 0 and json.loads(out)["funnel"][0]["name"] == "read"
    assert {path.name for path in (tmp_path / "quality").iterdir()} == {"quality.html", "quality.json"}
