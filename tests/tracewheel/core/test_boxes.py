"""What boxes see of the system, and the filter of their system calls."""

import re
from pathlib import Path

import pytest

from tracewheel.core import box_folders
from tracewheel.core.box_calls import ABSENT, ARCHITECTURES, KILLED, seccomp_program
from tracewheel.core.box_folders import hidden_folders, system_view


def test_the_filter_is_made_for_each_machine():
    for machine in ARCHITECTURES:
        program = seccomp_program(machine)
        assert len(program) % 8 == 0 and len(program) // 8 < 256
        assert set(KILLED[machine]).isdisjoint(ABSENT[machine]) and "ptrace" in KILLED[machine]
    assert seccomp_program("riscv64") is None


@pytest.mark.skipif(
    not Path("/usr/include/asm-generic/unistd.h").is_file(), reason="needs the kernel's headers: apt-get install linux-libc-dev"
)
@pytest.mark.parametrize(
    ("machine", "header"), [("x86_64", "x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")]
)
def test_numbers_are_those_of_the_kernels_headers(machine, header):
    path = Path("/usr/include", header)
    if not path.is_file():
        pytest.skip(f"needs the kernel's headers, {header}: apt-get install linux-libc-dev")
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text()))
    for name, number in {**KILLED[machine], **ABSENT[machine]}.items():
        assert int(known.get(name, number)) == number, name
    assert sum(name in known for name in KILLED[machine]) > 30


def test_our_own_code_is_hidden_where_it_lies_in_the_system(monkeypatch, tmp_path):
    home = tmp_path / "usr" / "src" / "app"
    (home / "wheel" / "sandbox").mkdir(parents=True)
    monkeypatch.setattr(box_folders, "USR", str(tmp_path / "usr"))
    monkeypatch.chdir(tmp_path)
    assert hidden_folders.__wrapped__(str(home / "wheel")) == (str(home),)
    packages = tmp_path / "usr" / "lib" / "python3" / "site-packages"
    (packages / "tracewheel" / "sandbox").mkdir(parents=True)
    (packages / "numpy").mkdir()
    (packages / "tracewheel" / "a").touch()
    assert hidden_folders.__wrapped__(str(packages / "tracewheel")) == (str(packages / "tracewheel"),)
    assert {"/root", "/home"}.isdisjoint(system_view())


def test_our_own_code_is_hidden_beside_a_program_that_is_bound(tmp_path):
    for name in ("tracewheel_worlds", "tasks", "numpy"):
        (tmp_path / "venv" / "lib" / "python3" / "site-packages" / name).mkdir(parents=True)
        (tmp_path / "venv" / "lib" / "python3" / "site-packages" / name / "a.py").touch()
    found = [Path(name).name for name in hidden_folders.__wrapped__("", (str(tmp_path / "venv"),)) if str(tmp_path) in name]
    assert found == ["tasks", "tracewheel_worlds"]
