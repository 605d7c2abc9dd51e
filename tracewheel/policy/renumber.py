"""A stored state under another policy version: what the loop goes on from when it goes back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tracewheel.core.files import read_json
from tracewheel.policy.adapters import ADAPTER_INFO, MODEL_INFO, write_info


def renumber(state: Path, out: Path, version: int) -> None:
    """Copy a state folder, and give its policy a version.

    Versions grow from update to update, also when the weights go back: rollouts and staleness are counted by them. Everything
    else (weights, optimiser, critic, buffer, KL weight) stays as it is. Files are links where the disk can hold one file under
    two names.
    """
    shutil.copytree(state, out, copy_function=_link, dirs_exist_ok=True)
    for name in (ADAPTER_INFO, MODEL_INFO):
        for path in sorted(out.glob(f"*/{name}")):
            write_info(path, read_json(path)["base_hash"], version)


def _link(one: str, other: str) -> None:
    if Path(one).name in (ADAPTER_INFO, MODEL_INFO):
        shutil.copy2(one, other)  # it is written anew, and a link would change the original
        return
    try:
        os.link(one, other)
    except OSError:
        shutil.copy2(one, other)
