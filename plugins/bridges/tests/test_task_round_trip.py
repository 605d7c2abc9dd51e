"""Tasks of other projects come back from a log of them as they were."""

import os
from pathlib import Path

import pytest

from plugins.projects.tests.test_task_round_trip import check_generated, check_read

STANDARDS = Path(os.environ.get("TRACEWHEEL_STANDARDS", Path(__file__).parents[3] / ".venv-standards"))
GYM = STANDARDS / "reasoning_gym" / "bin" / "python"
BFCL_LINE = {"id": "multi_turn_base_0", "question": [[{"role": "user", "content": "Move the file."}]]}


@pytest.mark.skipif(not GYM.exists(), reason="needs reasoning-gym: make setup-standards")
def test_generated_tasks_survive_the_road(tmp_path):
    check_generated(tmp_path, "reasoning_gym", {"python": str(GYM), "datasets": ["chain_sum", "family_relationships"]})


def test_tasks_of_files_survive_the_road(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_read(tmp_path, "bfcl", {"python": "python3"}, [BFCL_LINE], {("multi_turn_base", 1)})
