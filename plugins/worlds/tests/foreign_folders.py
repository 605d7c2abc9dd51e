"""Task folders and repositories for the tests of what others have made."""

import os
import shutil
import subprocess

TESTS = """import unittest
from src.m import double


class T(unittest.TestCase):
    def test_a(self):
        self.assertEqual(double(2), 4)
"""


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def git(folder, *command):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *command], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder, **files):
    write(folder, {name.replace("__", "/") + ".py": text for name, text in files.items()})
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")
    return git(folder, "rev-parse", "HEAD")


def write_patch_task(folder):
    """A task of a repository whose attributes name a filter."""
    repository = folder / "repository"
    write(
        repository,
        {".gitattributes": "*.py filter=x\nsrc/m.py export-ignore\n", "src/__init__.py": "", "tests/__init__.py": ""},
    )
    git(repository, "init", "-q")
    base = commit(repository, src__m="def double(x):\n    return x\n", tests__test_m=TESTS)
    fixed = TESTS + "    def test_b(self):\n        self.assertEqual(double(3), 6)\n"
    fix = commit(repository, src__m="def double(x):\n    return 2 * x\n", tests__test_m=fixed)
    text = f'base = "{base}"\nfix = "{fix}"\ntest_command = ["python3", "-m", "unittest"]\n'
    return write(folder, {"task.toml": text, "issue.md": "double(2) should be 4\n"})


def snapshot(*folders):
    """The bytes of all files of folders, where links lead to, and what is neither."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            size = path.lstat().st_size
            found[path] = (
                os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() and size < 1 << 20 else size
            )
    return found


def traps(folder, out):
    """Every place of a repository in which git finds a program to run, or another repository."""
    script = out.parent / "trap.sh"
    script.write_text(f"#!/bin/sh\nid >> {out}\ncat\n")
    script.chmod(0o755)
    repository = folder / "repository"
    for name in ("filter.x.smudge", "filter.x.process", "core.sshCommand", "core.fsmonitor", "core.pager", "diff.external"):
        git(repository, "config", name, str(script))
    git(repository, "config", "core.hooksPath", str(out.parent))
    for hook in ("post-checkout", "post-index-change"):
        shutil.copy(script, repository / ".git" / "hooks" / hook)
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "attributes").write_text("* filter=x\n")
    return script
