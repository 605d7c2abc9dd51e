"""A complete small project: environment, verifier, profile, three days of logs, a test."""

from __future__ import annotations

from pathlib import Path

from tracewheel.projects.project import Project
from tracewheel.projects.sample_logs import sample_logs

SAMPLE = Path(__file__).parent / "sample"
IGNORED = "runs/\n__pycache__/\n"


def sample_files(project: Project) -> dict[str, str]:
    """The files of the project, by their paths in its folder."""
    package = {
        f"{project.package}/{file.name}": file.read_text(encoding="utf-8").replace(
            "tracewheel.projects.sample", project.package
        )
        for file in sorted(SAMPLE.glob("*.py"))
    }
    logs = sample_logs(f"{project.package}.environment:FileDesk")
    return {
        "README.md": project.fill("sample_README.md"),
        "Makefile": project.fill("sample_Makefile"),
        "profile.yaml": project.fill("sample_profile.yaml"),
        f"test_{project.package}.py": project.fill("sample_test.txt"),
        ".gitignore": IGNORED,
        **package,
        **{f"logs/{name}": text for name, text in logs.items()},
    }
