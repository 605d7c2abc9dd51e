"""What goals of terminal tasks hold: the files that are asked for, or a check that runs apart.

`{"files": {path: wanted}}`: each wanted file has a `text` (line ends at the end do not count), `base64`, `link` or `contains`
(a list of texts), perhaps a `mode`; or is `{"absent": true}`. All other files are to be as they were.

`{"check": {"script": Python, "given": JSON, "expected": JSON}}`: the script runs in a box with the final files, reads `given`
from standard input and prints one line of JSON: what it found. Whether that is what was expected is decided elsewhere.
"""

from __future__ import annotations

from typing import Any

from tracewheel import DataError, Task, content_hash
from tracewheel_worlds.box_state import check_path

FINAL_FILES, CHECK_SCRIPT = "final_files", "check_script"
KINDS = {"text": str, "base64": str, "link": str, "contains": list, "mode": int, "absent": bool}


def terminal_task(prompt: str, initial_state: dict[str, Any], goal: dict[str, Any]) -> Task:
    """Make a task from its parts; the fingerprint ignores the wording."""
    fingerprint = content_hash({"state": initial_state, "goal": goal})
    return Task(
        id=f"terminal-{content_hash({'prompt': prompt, 'fingerprint': fingerprint})}",
        environment="terminal",
        family=goal["family"],
        tier=goal["tier"],
        prompt=prompt,
        initial_state=initial_state,
        goal=goal,
        verifier=CHECK_SCRIPT if "check" in goal else FINAL_FILES,
        fingerprint=fingerprint,
    )


def check_goal(goal: Any) -> None:
    """Check a goal.

    Raises:
        DataError: it is no goal of this environment; the message names the part.
    """
    if not isinstance(goal, dict) or not isinstance(goal.get("family"), str) or type(goal.get("tier")) is not int:
        raise DataError("'goal' needs a 'family' and a 'tier'")
    if ("files" in goal) == ("check" in goal):
        raise DataError("'goal' needs either 'files' or 'check'")
    if "check" in goal:
        check = goal["check"]
        if not isinstance(check, dict) or not isinstance(check.get("script"), str) or not {"given", "expected"} <= check.keys():
            raise DataError("'goal.check' needs 'script', 'given' and 'expected'")
        return
    if not isinstance(goal["files"], dict) or not goal["files"]:
        raise DataError("'goal.files' needs the wanted files by path")
    for path, wanted in goal["files"].items():
        try:
            check_path(path)
        except ValueError as error:
            raise DataError(f"'goal.files': {error}") from None
        known = (
            isinstance(wanted, dict)
            and wanted
            and all(isinstance(value, KINDS.get(name, ())) for name, value in wanted.items())
        )
        if not known:
            raise DataError(f"'goal.files.{path}' has one or more of {', '.join(KINDS)}")
