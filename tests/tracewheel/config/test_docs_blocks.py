"""Each YAML block of the docs is one that a user may copy: it loads as a profile, or as what its page says it is."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from tracewheel.config import load_config
from tracewheel.config.loading import load_ingest_config

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.M | re.S)
DVC, READER = "record:\n  cmd:", "conversation:"


def blocks():
    for page in (*sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("plugins/*/docs/*.md"))):
        text = page.read_text()
        if page.parts[-4] == "plugins" and not importlib.util.find_spec(f"tracewheel_{page.parts[-3]}"):
            continue  # its kinds are not installed
        for block in BLOCK.finditer(text):
            for part in re.split(r"^---\n", block[1], flags=re.M):
                yield pytest.param(part, id=f"{page.name}:{text[: block.start()].count(chr(10)) + 1}")


@pytest.mark.parametrize("text", blocks())
def test_a_block_of_the_docs_loads(text, tmp_path):
    path = tmp_path / "profile.yaml"
    path.write_text(text)
    if text.startswith(DVC):
        assert set(yaml.safe_load(text)["record"]) == {"cmd", "deps", "outs"}
    elif READER in text:
        load_ingest_config(("logs",), None, readers=[str(path)])
    elif text.startswith("sandbox:"):  # an environment's
        path.write_text(yaml.safe_dump({"environment": {"kind": "code", "args": yaml.safe_load(text)}}))
        load_config(path)
    else:
        load_config(path)


def test_keys_are_texts_and_values_are_yaml(tmp_path):
    path = tmp_path / "profile.yaml"
    path.write_text("schedule: {notify: [{url: 'https://a/b', on: [failed]}]}\ncomparison: {aa: no}\n")
    config = load_config(path, ["schedule.notify=[{url: 'https://a/b', on: [skipped]}]"])
    assert config.schedule.notify[0].on == ("skipped",)
    assert config.comparison.aa is False
