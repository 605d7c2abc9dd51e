"""Repositories of hostile make in task folders: their objects are read, and nothing of them runs."""

import shutil
import subprocess
import time

import pytest

from plugins.worlds.tests.foreign_folders import git, snapshot, traps, write_patch_task
from tracewheel.core.errors import DataError
from tracewheel.environments import make_environment

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None or shutil.which("git") is None,
    reason="needs git, and bubblewrap: apt-get install bubblewrap",
)


@pytest.fixture(scope="module")
def patch_folder(tmp_path_factory):
    return write_patch_task(tmp_path_factory.mktemp("patch"))


def test_a_repository_says_nothing_but_its_objects(patch_folder, tmp_path):
    plain = make_environment("patch").tasks_from(patch_folder)
    folder = tmp_path / "all" / "trapped"
    shutil.copytree(patch_folder, folder)
    traps(folder, tmp_path / "pwned")
    # Another commit in the place of the base, and other parents: the task is that of the commits that are named.
    text = (folder / "task.toml").read_text().split('"')
    git(folder / "repository", "replace", text[1], text[3])
    before = snapshot(folder)
    (task,) = make_environment("patch").tasks_from(folder.parent)
    assert task == plain[0] and "return x\n" in task.initial_state["files"]["src/m.py"], "attributes leave nothing out"
    assert not (tmp_path / "pwned").exists() and snapshot(folder) == before
    (folder / "task.toml").write_text((folder / "task.toml").read_text().replace(text[1], text[1][:10]))
    assert make_environment("patch").tasks_from(folder) == plain, "the beginning of a name is enough"
    shutil.move(folder / "repository" / ".git", tmp_path / "bare")
    shutil.rmtree(folder / "repository")
    shutil.move(tmp_path / "bare", folder / "repository")
    assert make_environment("patch").tasks_from(folder) == plain, "a bare one, too"


@pytest.mark.parametrize(
    "name",
    ["--remote=ssh://h/x", "--output=WRITTEN", "HEAD", "HEAD^", "main:src", "abc", "A" * 40, "", "0" * 40, "deadbeef\\nx"],
)
def test_a_commit_is_hexadecimal_and_there(patch_folder, tmp_path, name):
    folder = tmp_path / "task"
    shutil.copytree(patch_folder, folder)
    traps(folder, tmp_path / "pwned")
    (tmp_path / "written").write_text("precious")
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(text.replace(text.split('"')[1], name.replace("WRITTEN", str(tmp_path / "written"))))
    with pytest.raises(DataError, match=r"base: String should match pattern|commit 0{40} is not in repository"):
        make_environment("patch").tasks_from(folder)
    assert (tmp_path / "written").read_text() == "precious" and not (tmp_path / "pwned").exists()


def test_objects_of_another_repository_are_not_read(patch_folder, tmp_path):
    """By alternates, a `.git` file, a link at any level, or a remote that would send what is missing."""
    all_folders = tmp_path / "all"

    def other(name):
        shutil.copytree(patch_folder, all_folders / name, symlinks=True)
        return all_folders / name / "repository"

    private = other("good") / ".git"
    objects = private / "objects"
    for name in (
        "alternates",
        "promisor",
        "gitfile",
        "linked git",
        "linked objects",
        "linked fan-out",
        "linked objects' files",
        "linked repository",
    ):
        repository = other(name)
        inside = repository / ".git"
        if name == "linked repository":
            shutil.rmtree(repository)
            repository.symlink_to(private.parent)
        elif name in ("gitfile", "linked git"):
            shutil.rmtree(inside)
            inside.symlink_to(private) if name == "linked git" else inside.write_text(f"gitdir: {private}\n")
        elif name == "linked objects":
            shutil.rmtree(inside / "objects")
            (inside / "objects").symlink_to(objects)
        else:
            for fan_out in [one for one in (inside / "objects").iterdir() if len(one.name) == 2]:
                files = sorted(fan_out.iterdir())
                shutil.rmtree(fan_out)
                if name == "linked fan-out":
                    fan_out.symlink_to(objects / fan_out.name)
                if name == "linked objects' files":
                    fan_out.mkdir()
                    [(fan_out / one.name).symlink_to(objects / fan_out.name / one.name) for one in files]
        if name == "alternates":
            (inside / "objects" / "info").mkdir(exist_ok=True)
            (inside / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        if name == "promisor":
            for key, value in (
                ("core.repositoryformatversion", "1"),
                ("extensions.partialClone", "origin"),
                ("remote.origin.promisor", "true"),
                ("remote.origin.url", str(private)),
            ):
                git(repository, "config", key, value)
    loaded = make_environment("patch").tasks_from(all_folders)
    assert len(loaded) == 1
    for folder in [one for one in all_folders.iterdir() if one.name != "good"]:
        with pytest.raises(DataError, match="is not in|a link"):
            make_environment("patch").tasks_from(folder)


def test_a_tree_that_names_itself_many_times_ends(patch_folder, tmp_path):
    folder = tmp_path / "task"
    shutil.copytree(patch_folder, folder)
    repository = folder / "repository"
    made = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], cwd=repository, input=b"x" * 1000, capture_output=True, check=True
    )
    lines, kind = made.stdout.decode().strip(), "100644 blob"
    for _ in range(9):
        listing = "".join(f"{kind} {lines}\t{name}\n" for name in "abcdefghij")
        made = subprocess.run(["git", "mktree"], cwd=repository, input=listing.encode(), capture_output=True, check=True)
        lines, kind = made.stdout.decode().strip(), "040000 tree"
    bomb = git(repository, "commit-tree", lines, "-m", "x")
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(text.replace(text.split('"')[1], bomb))
    began = time.monotonic()
    with pytest.raises(DataError, match="is damaged, or holds more than"):
        make_environment("patch").tasks_from(folder)
    assert time.monotonic() - began < 20
