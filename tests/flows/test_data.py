"""`tracewheel data report`, from the command line."""

import json

import pytest

from flows.cli import build_parser, main


@pytest.fixture(scope="module")
def made(profile, tmp_path_factory):
    """Ingested and curated logs of the profile."""
    folder = tmp_path_factory.mktemp("made")
    assert main(["ingest", str(profile), "--out", str(folder / "ingested")]) == 0
    assert main(["curate", str(profile), "--traces", str(folder / "ingested"), "--out", str(folder / "curated")]) == 0
    return folder / "ingested", folder / "curated"


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
