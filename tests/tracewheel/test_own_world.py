"""Your environment, its library desk: its code runs, its log line becomes a verified task, its profile is valid."""

import itertools
import json
import re
import sys
import types
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tracewheel.config import CurateSections, IngestSections, RetrainConfig
from tracewheel.curation.curate import curate
from tracewheel.traces.ingest import ingest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def blocks():
    """The page's first block of each language."""
    found = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "docs" / "your-environment.md").read_text(), re.DOTALL)
    return dict(reversed(found))


@pytest.fixture
def library(blocks, monkeypatch):
    """The page's module, as if it lay in the working folder."""
    module = types.ModuleType("library")
    exec(blocks["python"], module.__dict__)
    monkeypatch.setitem(sys.modules, "library", module)
    return module


def test_the_profile_of_the_page_is_valid(blocks):
    profile = RetrainConfig.model_validate({"name": "library", **yaml.safe_load(blocks["yaml"])})
    assert (ROOT / profile.policy.chat_template).is_file()


def test_the_log_of_the_page_becomes_verified_tasks(blocks, library, tmp_path):
    """The line with 24 pairs of other names (equal but for a number, they would be copies), and a failed attempt for each."""
    lines = []
    for member, title in itertools.product(("Ada", "Bob", "Cleo", "Dan", "Eve", "Finn"), ("Emma", "Dune", "Solaris", "Walden")):
        episode = json.loads(blocks["json"].replace("Ada", member).replace("Emma", title))
        assert episode["messages"][0]["content"] == library.LibraryDesk.system_prompt
        failed = {**episode, "messages": [*episode["messages"][:2], *episode["messages"][-2:]]}
        lines += [json.dumps(episode), json.dumps(failed)]
    (tmp_path / "logs.jsonl").write_text("\n".join(lines))
    values = yaml.safe_load(blocks["yaml"])
    values["ingest"] = {"paths": [str(tmp_path / "logs.jsonl")]}
    values["curation"] |= {"train_tasks": 4, "validation_tasks": 2, "held_out_tasks": 4}
    profile = RetrainConfig.model_validate({"name": "library", **values})
    ingest(IngestSections.of(profile).ingest, tmp_path / "traces")
    curate(CurateSections.of(profile), tmp_path / "traces", tmp_path / "curated")
    episodes = pd.read_parquet(tmp_path / "curated" / "episodes.parquet")
    assert set(episodes["success"]) == {0.0, 1.0}
    tasks = pd.read_parquet(tmp_path / "curated" / "tasks.parquet")
    assert tasks["split"].value_counts().to_dict().items() >= {"train": 4, "validation": 2, "held_out": 4}.items()
