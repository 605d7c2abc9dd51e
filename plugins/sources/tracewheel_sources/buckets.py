"""Files of logs in buckets, by fsspec: `s3://BUCKET/FOLDER`, `gs://…`, `az://…`.

The credentials are where the cloud's own library looks for them: its variables of the environment, or the machine's role.
Objects that are new or have changed are copied under their own names, so that a log that grows goes on where it was read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from tracewheel import ConfigError, InfrastructureError, TracewheelError, is_log_name

BLOCK = 1 << 20
COMMIT = 256 << 20  # bytes that a kill may lose
LARGEST = 16 << 30  # bytes of one object
STAMPS = ("ETag", "etag", "md5Hash", "md5", "generation", "LastModified", "last_modified", "mtime", "updated", "created")


class Bucket:
    """The logs below a path in a file system of fsspec.

    Args:
        address: What follows `kind:`.

    Raises:
        ConfigError: the address is wrong, or the cloud's library is not installed.
    """

    protocol = ""
    package = ""

    def __init__(self, address: str) -> None:
        if not address.startswith("//") or not address.strip("/"):
            raise ConfigError(f"{self.protocol}:{address}: write it as {self.protocol}://BUCKET/FOLDER")
        self._root = address[2:].rstrip("/")

    def fetch(self, cursor: Any, folder: Path) -> Iterator[Any]:
        """Copy what is new.

        Raises:
            ConfigError: the cloud's library is not installed, or there is no such folder.
            InfrastructureError: the store does not answer, or refuses.
        """
        import fsspec

        known = dict((cursor or {}).get("objects", {}))
        try:
            system = fsspec.filesystem(self.protocol, skip_instance_cache=True, use_listings_cache=False)
        except ImportError as error:
            raise ConfigError(f"{self.protocol}: needs the package {self.package}: pip install {self.package}") from error
        copied = 0
        try:
            found = system.find(self._root, detail=True)
            if not found and not system.exists(self._root):
                raise FileNotFoundError(self._root)
            for path, about in sorted(found.items()):
                local, stamp = self._local(path), _stamp(about)
                if local is None or about.get("type") != "file" or known.get(path) == stamp:
                    continue
                copied += _copy(system, path, folder / local)
                known[path] = stamp
                if copied >= COMMIT:
                    copied = 0
                    yield {"objects": known}
        except FileNotFoundError as error:
            raise ConfigError(f"{self.protocol}://{self._root}: no such bucket or folder") from error
        except TracewheelError:
            raise
        except Exception as error:  # each cloud's library has its own
            raise InfrastructureError(f"{self.protocol}://{self._root}: {type(error).__name__}: {error!s:.300}") from error
        yield {"objects": known}

    def _local(self, path: str) -> PurePosixPath | None:
        """Where an object's copy goes; None of what is no log, hidden, or named to lead out of the folder."""
        inside = path.lstrip("/").removeprefix(self._root.lstrip("/")).strip("/") or PurePosixPath(path).name
        parts = inside.split("/")
        if not is_log_name(parts[-1]) or any(not part or part.startswith(".") or "\0" in part for part in parts):
            return None
        return PurePosixPath(*(part if len(part.encode()) < 200 else _short(part) for part in parts))


def _short(part: str) -> str:
    suffixes = "".join(PurePosixPath(part).suffixes[-2:])[-40:]
    return hashlib.sha256(part.encode()).hexdigest()[:32] + suffixes


def _stamp(about: dict[str, Any]) -> list[str]:
    return [str(about.get("size")), *(str(about[key]) for key in STAMPS if about.get(key) is not None)]


def _copy(system: Any, path: str, target: Path) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with system.open(path, "rb") as source, target.open("wb") as out:
        while block := source.read(BLOCK):
            size += len(block)
            if size > LARGEST:
                raise InfrastructureError(f"{path}: larger than {LARGEST >> 30} GiB")
            out.write(block)
    return size


class S3Bucket(Bucket):
    """Amazon S3, and stores that speak its protocol (AWS_ENDPOINT_URL)."""

    protocol, package = "s3", "s3fs"


class GoogleBucket(Bucket):
    """Google Cloud Storage."""

    protocol, package = "gs", "gcsfs"


class AzureBucket(Bucket):
    """Azure Blob Storage."""

    protocol, package = "az", "adlfs"
