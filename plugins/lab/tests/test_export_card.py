"""What an export says of itself: the licence and the name of its base, and what to look at."""

import argparse
import shutil
from pathlib import Path

from tracewheel_lab.commands.export import card
from tracewheel_lab.model_export.base_card import base_license, hub_name


def test_licence_and_name_of_a_base(base, tmp_path):
    folder = Path(shutil.copytree(base, tmp_path / "base"))
    assert (base_license(str(folder)), hub_name(str(folder)), hub_name("org/model")) == ("unknown", None, "org/model")
    (folder / "LICENSE").write_text("                 Apache License\n           Version 2.0, January 2004\n")
    assert base_license(str(folder)) == "apache-2.0"
    (folder / "LICENSE").write_text("My own terms")
    assert base_license(str(folder)) == "other"
    (folder / "README.md").write_text("---\nlicense: gemma\n---\n# Model\n")
    assert base_license(str(folder)) == "gemma"


def test_the_card_names_what_to_look_at():
    result = {
        "out": "e", "format": "merged", "name": "base-abc", "dtype": "float32", "license": "unknown", "run_id": "abc",
        "verdict": "refused", "policy_version": 2, "policy_digest": "0" * 64, "effect": 0.2, "rounding": 0.01, "files": {},
        "prompt": "ab12", "prompt_known": True,
    }  # fmt: skip
    shown = card(argparse.Namespace(policy="runs/abc"), result)
    assert shown.title == "base-abc written to e as merged" and shown.tone == "warning"
    assert ("rounding", "5.0% of what training changed") in shown.rows and ("run id", "abc") in shown.rows
    assert "the licence of the base is unknown" in shown.look_at and "the gate's verdict was 'refused'" in shown.look_at
    assert ("prompt", "ab12") in shown.rows and "it is a pair with prompt.json" in shown.look_at
