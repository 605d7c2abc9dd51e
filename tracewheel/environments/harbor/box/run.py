"""The first process in the box of a task's tests: `python3 -I -c TEXT FOLDER SCRIPT`, with this text.

What the tests start runs as the same user, so it could kill the script and write a reward in its place. How the script ended
is therefore told by the exit status of this process, whose memory and descriptors are closed to others; who kills it ends the
tests without a reward. What remains open is said in `docs/standards.md`.
"""

import ctypes
import subprocess
import sys

READY = "ready"  # as in `grading.py`, which reads these
FINE, FAILED, KILLED, BROKEN = 40, 41, 42, 43
PR_SET_DUMPABLE = 4
TOOLS = ["python3", "-I", "/box/.tools/tools.py", "ready"]


def main(folder: str, script: str) -> int:
    """Say that the tools work, run the script, and return how it ended."""
    if (
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0
        or subprocess.run(TOOLS, stdout=2, check=False).returncode != 0
    ):
        return BROKEN
    print(READY, flush=True)
    try:
        status = subprocess.run(["/bin/bash", script], cwd=folder, stdout=2, check=False).returncode
    except OSError as error:
        print(f"{folder}: {error}", file=sys.stderr)
        return FAILED
    return KILLED if status < 0 else FINE if status == 0 else FAILED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
