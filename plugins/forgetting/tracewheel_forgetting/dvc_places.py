"""Where DVC keeps copies of data: outputs, its cache, and remotes that are folders; read from DVC's own files."""

from __future__ import annotations

import configparser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tracewheel import DataError
from tracewheel_forgetting.file_search import Searcher

DVC, LOCK_FILE, PIPELINE_FILE = ".dvc", "dvc.lock", "dvc.yaml"
CONFIGS = ("config", "config.local")


@dataclass(frozen=True)
class DvcPlaces:
    """The places of a project.

    Attributes:
        project: The folder with `.dvc`.
        outputs: What stages and `*.dvc` files have as outputs, as far as it is there.
        caches: The cache, `.dvc/tmp` (experiments' workspaces), and remotes that are folders.
        remotes: Names of remotes elsewhere, which cannot be searched here.
    """

    project: Path
    outputs: tuple[Path, ...] = ()
    caches: tuple[Path, ...] = ()
    remotes: tuple[str, ...] = ()

    def search(self, searcher: Searcher, without: list[Path]) -> list[Path]:
        """The files that hold something.

        Args:
            searcher: What to search for.
            without: Files and folders that are looked after elsewhere.

        Raises:
            DataError: a file cannot be read.
        """
        apart = {path.resolve() for path in without}
        done = searcher.search([*self.outputs, *self.caches])
        if done.unread:
            raise DataError(
                f"{done.unread[0]}: this copy of DVC's cannot be searched; mend or delete it, and repeat the command"
            )
        return [found.path for found in done.found if not apart & {found.path, *found.path.parents}]


def dvc_places(folder: Path) -> DvcPlaces | None:
    """The places of the project that a folder lies in; None outside of one.

    Raises:
        DataError: a file of DVC's is damaged.
    """
    here = folder.resolve()
    project = next((path for path in (here, *here.parents) if (path / DVC).is_dir()), None)
    if project is None:
        return None
    own = project / DVC
    cache, folders, remotes = own / "cache", [own / "tmp"], []
    for section, values in _settings(own):
        if section == "cache" and values.get("dir"):
            cache = own / values["dir"]
        elif section.startswith("remote ") and (url := values.get("url")):
            name = section.removeprefix("remote ").strip('"')
            if "://" in url:
                remotes.append(name)
            else:
                folders.append(own / url)
    outputs = dict.fromkeys(path for file in _files(project) for path in _outputs(file) if path.exists())
    caches = dict.fromkeys(path.resolve() for path in (cache, *folders) if path.is_dir())
    return DvcPlaces(project, tuple(outputs), tuple(caches), tuple(sorted(set(remotes))))


def _settings(own: Path) -> Iterator[tuple[str, dict[str, str]]]:
    for name in CONFIGS:
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(own / name, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise DataError(f"{own / name}: DVC's settings cannot be read ({error}); mend the file") from error
        for section in parser.sections():
            yield section.strip("'"), dict(parser[section])


def _files(project: Path) -> list[Path]:
    """Lock files and pointers of the project, not in hidden folders."""
    folders = [path for path in project.iterdir() if path.is_dir() and not path.name.startswith(".")]
    found = [project.glob(name) for name in (LOCK_FILE, f"*{DVC}")]
    found += [folder.rglob(name) for folder in folders for name in (LOCK_FILE, f"*{DVC}")]
    return sorted(path for paths in found for path in paths if path.is_file())


def _outputs(file: Path) -> Iterator[Path]:
    content = _read(file)
    if file.name != LOCK_FILE:
        stages = [(content, content.get("wdir"))]
    else:
        pipeline = file.with_name(PIPELINE_FILE)
        made = _read(pipeline).get("stages", {}) if pipeline.is_file() else {}
        stages = [(stage, _folder(made, name)) for name, stage in content.get("stages", {}).items()]
    for stage, folder in stages:
        for out in stage.get("outs") or ():
            yield (file.parent / (folder or ".") / out["path"]).resolve()


def _folder(made: dict[str, Any], name: str) -> str | None:
    """The working folder of a stage; the lock file does not say it. `name@key` is one of a `foreach`."""
    stage = made.get(name.partition("@")[0]) or {}
    return stage.get("wdir") or (stage.get("do") or {}).get("wdir")


def _read(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read as a file of DVC's ({error}); mend it") from error
    if not isinstance(content, dict):
        raise DataError(f"{file}: is no file of DVC's; mend or move it")
    return content
