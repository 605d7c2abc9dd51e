"""Stands in for programs that install things, in a box without a network: `python3 -I tools.py NAME ARGUMENTS`.

What is asked for is there already, or the program fails. Files that an agent left beside the tests must not change what these
programs do: Python is isolated from them, and pytest reads its settings from the tests' folder alone.
"""

import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = "/tests"
SETTINGS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
PYTHON_PACKAGES = {"pytest", "pytest-json-ctrf", "uv", "pip", "setuptools", "wheel"}
SYSTEM_PACKAGES = {
    "python3-pip": "python3",
    "python3-venv": "python3",
    "coreutils": "ls",
    "build-essential": "gcc",
    "ca-certificates": "sh",
}
WITH_VALUES = {"-p", "--python", "-w", "--with", "--ctrf", "--index-url", "-t", "--target"}


def fail(name: str, what: str) -> None:
    """End as a program that did not find something."""
    sys.exit(f"{name}: {what} is not in this sandbox, which has no network")


def system_packages(name: str, words: list[str]) -> None:
    """Do as `apt-get`: a package is there if its program is."""
    if words[:1] == ["install"]:
        for word in words[1:]:
            package = word.partition("=")[0]
            if shutil.which(SYSTEM_PACKAGES.get(package, package)) is None:
                fail(name, package)


def python_packages(name: str, words: list[str]) -> None:
    """Do as `pip`."""
    if words[:1] == ["install"]:
        for word in words[1:]:
            package = re.split(r"[=<>!~\[]", word)[0].lower()
            if package not in PYTHON_PACKAGES:
                fail(name, package)


def pytest(arguments: list[str]) -> None:
    """Run pytest, without the report of a plugin that is not here, and as its own program does: not in the current folder."""
    sys.path.insert(0, os.path.join(HERE, "site"))
    import pytest as runner

    # Plugins could come from the agent's folders, where the task has them on Python's path.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    if path := os.environ.get("TESTS_PYTHONPATH"):
        os.environ["PYTHONPATH"] = path
        sys.path += [os.path.abspath(part) for part in path.split(os.pathsep) if part]
    kept, skip = [], False
    for word in arguments:
        if not skip and word != "--ctrf" and not word.startswith("--ctrf="):
            kept.append(word)
        skip = word == "--ctrf"
    ours = ["-p", "no:cacheprovider", "-c", settings()]
    if os.path.isdir(TESTS):
        ours += [f"--rootdir={TESTS}", f"--confcutdir={TESTS}"]
    sys.exit(int(runner.main([*ours, *kept])))


def settings() -> str:
    """The settings of pytest: the first file of the tests' folder that has some, or an empty one."""
    from pathlib import Path

    from _pytest.config.findpaths import load_config_dict_from_file

    for name in SETTINGS:
        path = Path(TESTS, name)
        if path.is_file() and load_config_dict_from_file(path) is not None:
            return str(path)
    return os.devnull


def ready() -> None:
    """Fail unless pytest is there."""
    sys.path.insert(0, os.path.join(HERE, "site"))
    import pytest as runner

    sys.exit(0 if callable(runner.main) else 1)


def uvx(arguments: list[str]) -> None:
    """Run a tool with packages."""
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        flag, _, value = arguments[place].partition("=")
        if flag in WITH_VALUES and not value:
            place += 1
            value = arguments[place]
        if flag in ("-w", "--with"):
            python_packages("uvx", ["install", value])
        place += 1
    tool(arguments[place:])


def tool(arguments: list[str]) -> None:
    """Run a program by its name."""
    if arguments[:1] == ["pytest"] or arguments[:1] == ["py.test"]:
        pytest(arguments[1:])
    if arguments[:3] and arguments[0].startswith("python") and arguments[1:3] == ["-m", "pytest"]:
        pytest(arguments[3:])
    os.execvp(arguments[0], arguments)


def main(name: str, arguments: list[str]) -> None:
    """Do what the program of this name would."""
    words = [word for word in arguments if not word.startswith("-")]
    if name == "ready":
        ready()
    elif name in ("apt-get", "apt"):
        system_packages(name, words)
    elif name in ("pip", "pip3"):
        python_packages(name, words)
    elif name == "curl":
        if not any("astral.sh/uv" in word for word in words):
            fail(name, " ".join(words))
    elif name == "pytest":
        pytest(arguments)
    elif name == "uvx":
        uvx(arguments)
    elif words[:1] == ["pip"]:
        python_packages("uv pip", words[1:])
    elif words[:1] == ["add"]:
        python_packages("uv add", ["install", *words[1:]])
    elif words[:1] == ["venv"]:
        folder = words[1] if len(words) > 1 else ".venv"
        if os.path.islink(folder):
            os.unlink(folder)
        elif os.path.exists(folder):  # an agent's, with a script in it that tests would read
            shutil.rmtree(folder)
        os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
        open(os.path.join(folder, "bin", "activate"), "w").close()
    elif words[:1] == ["run"]:
        uvx(arguments[arguments.index("run") + 1 :])
    elif words[:1] not in (["init"], ["sync"]):
        fail(name, " ".join(words))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
