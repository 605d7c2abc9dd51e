"""Unified diffs as `diff -u` and git write them."""

import random
import shutil
import subprocess

import pytest

from tracewheel_worlds.patch.diff import DiffError, apply_diff


def random_files(rng):
    files = {}
    for name in rng.sample(["a.py", "b.py", "pkg/c.py", "pkg/d.txt"], rng.randint(1, 4)):
        lines = [rng.choice(["x = 1", "", "    return y", "-- dash", "++ plus", "@@ odd"]) for _ in range(rng.randint(1, 40))]
        files[name] = "\n".join(lines) + rng.choice(["\n", ""])
    return files


def changed(files, rng):
    after = {}
    for name, text in files.items():
        lines = text.split("\n")
        for _ in range(rng.randint(0, 4)):
            place = rng.randrange(len(lines))
            lines[place : place + rng.randint(0, 3)] = ["new line"] * rng.randint(0, 2)
        if lines and any(lines) and rng.random() < 0.9:
            after[name] = "\n".join(lines)
    if rng.random() < 0.3:
        after["made.py"] = "made = True\n"
    return after


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_what_git_writes_gives_what_git_saw(tmp_path):
    rng = random.Random(20)
    for number in range(25):
        files = random_files(rng)
        after = changed(files, rng)
        for side, content in (("old", files), ("new", after)):
            for name, text in content.items():
                path = tmp_path / str(number) / side / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
            (tmp_path / str(number) / side).mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["git", "diff", "--no-index", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/", "old", "new"],
            cwd=tmp_path / str(number),
            capture_output=True,
            text=True,
        )
        diff = done.stdout.replace("a/old/", "a/").replace("b/new/", "b/").replace("a/new/", "a/").replace("b/old/", "b/")
        if diff:
            assert apply_diff(files, diff) == after, diff
        else:
            assert files == after


@pytest.mark.parametrize(
    "diff",
    [
        "",
        "--- a/a.py\n+++ b/a.py\n",
        "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n-x = 1\n",
        "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 2\n+x = 3\n",
        "--- a/missing.py\n+++ b/missing.py\n@@ -1 +1 @@\n-x = 1\n+x = 3\n",
        "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+x = 3\n",
    ],
)
def test_a_diff_that_does_not_fit_is_refused(diff):
    with pytest.raises(DiffError):
        apply_diff({"a.py": "x = 1\n"}, diff)
