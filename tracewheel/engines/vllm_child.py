"""vLLM's server as a child process that ends with its parent: `python -m tracewheel.engines.vllm_child PARENT OPTION...`."""

from __future__ import annotations

import runpy
import sys

from tracewheel.core.processes import end_with_parent, kill_group

if __name__ == "__main__":
    end_with_parent(int(sys.argv.pop(1)), kill_group)
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
