"""A project: its names, and its folder, which is written whole or not at all."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tracewheel.core.errors import DataError, InputError
from tracewheel.core.store import produce_whole

TEMPLATES = Path(__file__).parent / "templates"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
Files = Mapping[str, str]


@dataclass(frozen=True)
class Project:
    """A new project.

    Attributes:
        folder: Where it is written; its last part is the project's name.
        name: As in `my-agent`.
        package: The name that Python imports, as in `my_agent`.
    """

    folder: Path
    name: str
    package: str

    @classmethod
    def at(cls, path: str) -> Project:
        """The project of a folder that is still to be written.

        Raises:
            InputError: the folder's name is none that Python can import, or another module has it.
            DataError: there is something at this place.
        """
        folder = Path(path).resolve()
        name = folder.name
        package = name.replace("-", "_").lower()
        if not NAME.fullmatch(name) or keyword.iskeyword(package):
            raise InputError(
                f"{path}: '{name}' gives no name that Python can import; take letters, digits and hyphens, as in my-agent"
            )
        if package in sys.stdlib_module_names or package in ("tracewheel", "tasks", "flows", "tests", "logs", "runs", "base"):
            raise InputError(f"{path}: '{package}' is the name of another module or folder; take another, as in my-{name}")
        if folder.exists() or folder.is_symlink():
            raise DataError(f"{path}: exists; `tracewheel init` replaces nothing, so give a new folder")
        return cls(folder, name, package)

    def fill(self, template: str, **more: str) -> str:
        """The text of a template with the project's names, and with more words of the template replaced, each once."""
        text = (TEMPLATES / template).read_text(encoding="utf-8")
        words = {"PROJECT": self.name, "PACKAGE": self.package, **more}
        return re.sub(rf"\b({'|'.join(words)})\b", lambda found: words[found[0]], text)

    def write(self, files: Files, copies: Mapping[str, Path] | None = None) -> list[str]:
        """Write the project's folder; returns the names of its files.

        Args:
            files: Texts by path in the folder.
            copies: Files of elsewhere by path in the folder.

        Raises:
            InfrastructureError: the folder cannot be written.
        """

        def write(folder: Path) -> None:
            for name, text in files.items():
                place = folder / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
            for name, source in (copies or {}).items():
                place = folder / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(source.read_bytes())

        produce_whole(self.folder, write)
        return sorted([*files, *(copies or {})])
