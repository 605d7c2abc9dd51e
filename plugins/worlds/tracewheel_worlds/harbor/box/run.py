"""The first process in the box of a task's tests: `python3 -I -c TEXT FOLDER SCRIPT`, with this text.

What the tests start runs as the same user, so it could kill the script and write a reward in its place. How the script ended
is therefore told by the exit status of this process, whose memory and descriptors are closed to others; who kills it ends the
tests without a reward. All that outlives the script is ended before the box is read, and this process says that there was
something. What remains open is said in `plugins/bridges/docs/standards.md`.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

READY = "ready"  # as in `grading.py`, which reads these
FINE, FAILED, KILLED, BROKEN = 40, 41, 42, 43
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
TOOLS = ["python3", "-I", "/box/.tools/tools.py", "ready"]


def main(folder: str, script: str) -> int:
    """Say that the tools work, run the script, and return how it ended."""
    if (
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0
        or ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0
        or subprocess.run(TOOLS, stdout=2, check=False).returncode != 0
    ):
        return BROKEN
    print(READY, flush=True)
    try:
        process = subprocess.Popen(["/bin/bash", script], cwd=folder, stdout=2)
    except OSError as error:
        print(f"{folder}: {error}", file=sys.stderr)
        return FAILED
    orphans = 0  # come to this process when their parents end
    while (ended := os.wait())[0] != process.pid:
        orphans += 1
    status = process.returncode = os.waitstatus_to_exitcode(ended[1])
    if end_others() or orphans:
        print("others", flush=True)
    return KILLED if status < 0 else FINE if status == 0 else FAILED


def end_others() -> bool:
    """End all other processes of the box, and say whether there were any."""
    others = False
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                others = True
        except ChildProcessError:
            pass
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return others
        others = True
        time.sleep(0.001)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
