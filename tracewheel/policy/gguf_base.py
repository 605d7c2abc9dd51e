"""Bases that are GGUF files, converted once into a folder that transformers reads like any other.

The folder lies beside the file, in `.tracewheel/`, under the file's digest and the converter's version, so another file or
converter makes another folder. It is written under another name and renamed, and its files are compared with their
recorded digests before they are used: a folder that was left half-written or damaged is made again.

Weights are kept in float32, as the file's blocks are read: a block of Q4_1 holds 32 numbers of 4 bits, a scale and an
offset in float16, and scale * number + offset has more digits than bfloat16. `policy.dtype: bfloat16` rounds them when they
are loaded, in the same way for sampler and learner.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

from tracewheel.core.errors import ConfigError, DataError, InfrastructureError
from tracewheel.core.files import read_json, write_json
from tracewheel.core.fingerprint import files_hash, package_versions
from tracewheel.core.locks import hold
from tracewheel.core.store import produce_whole

SUFFIX, MAGIC = ".gguf", b"GGUF"
CONVERTED, RECORD = ".tracewheel", "conversion.json"
VERSION = 1  # of the converter: count it up with every change of what it writes
PACKAGES = ("gguf", "transformers")
logger = logging.getLogger(__name__)


def is_gguf(base: str) -> bool:
    """Whether a base is named as a GGUF file."""
    return base.lower().endswith(SUFFIX)


def gguf_file(base: str) -> Path:
    """The GGUF file that a base names.

    Raises:
        DataError: there is no such file.
    """
    path = Path(base)
    if not path.is_file():
        raise DataError(f"policy.base: {path}: no such file; a GGUF base is a file on this machine, named FOLDER/FILE.gguf")
    return path


def converted_folder(base: str) -> Path:
    """The folder that a GGUF file was converted into; it is converted now if that has not been done.

    Raises:
        DataError: there is no such file, it is not a whole GGUF file, or transformers cannot read its architecture.
        ConfigError: the gguf package is missing.
        InfrastructureError: the folder beside the file cannot be written to.
    """
    file = gguf_file(base)
    parent = file.parent / CONVERTED
    folder = parent / f"{file.stem}-{files_hash([file])}-v{VERSION}"
    if _is_whole(folder):
        return folder
    _check_beginning(file)
    try:
        parent.mkdir(exist_ok=True)
        (parent / ".gitignore").write_text("*\n")
    except OSError as error:
        raise InfrastructureError(
            f"{parent}: cannot be written to ({error.strerror}): the converted weights of {file.name} go there; copy or link "
            "the file to a folder of your own and name that in policy.base"
        ) from error
    with hold(parent, wait=True):  # another process may be converting the same file
        if not _is_whole(folder):
            logger.info("%s: converting to %s, once", file, folder)
            produce_whole(folder, lambda out: convert(file, out))
    return folder


def convert(file: Path, out: Path) -> None:
    """Write a GGUF file's weights in float32, its config and its tokenizer, and `conversion.json` with their digests.

    Raises:
        DataError: transformers cannot read its architecture, or weights or tokenizer are missing.
        ConfigError: the gguf package is missing.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with _as_data_errors(file), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, loading = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32, output_loading_info=True
        )
        if missing := sorted(loading["missing_keys"]):
            raise DataError(f"{file}: lacks the weights {', '.join(missing[:3])}: it is no whole model; use another file")
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    # transformers keeps the quantisation's settings and refuses to save; the weights are plain numbers by now.
    model.hf_quantizer = None
    for name in ("quantization_config", "_pre_quantization_dtype", "_model_name_or_path"):
        if hasattr(model.config, name):
            delattr(model.config, name)
    model.save_pretrained(out)
    tokenizer.name_or_path = file.stem
    tokenizer.save_pretrained(out)
    names = sorted(path.name for path in out.iterdir())
    record = {
        "converter": VERSION,
        "packages": package_versions(PACKAGES),
        "gguf": files_hash([file]),
        "dtype": "float32",
        "files": {name: files_hash([out / name]) for name in names},
    }
    write_json(out / RECORD, record)


def _is_whole(folder: Path) -> bool:
    """Whether the folder holds a conversion, all of whose files are as they were written."""
    try:
        files: dict[str, str] = read_json(folder / RECORD)["files"]
        return bool(files) and all(files_hash([folder / name]) == digest for name, digest in files.items())
    except (DataError, OSError, KeyError, TypeError, AttributeError):
        return False


def _check_beginning(file: Path) -> None:
    """Check that a file begins like a GGUF file and that the gguf package is there.

    Raises:
        DataError: it does not.
        ConfigError: the gguf package is missing.
    """
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError(f"policy.base: {file} needs the gguf package: pip install 'gguf>=0.19'")
    with file.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise DataError(f"{file}: not a GGUF file (it does not begin with {MAGIC.decode()}); fetch it again")


@contextlib.contextmanager
def _as_data_errors(file: Path) -> Iterator[None]:
    """Errors of a file that cannot be converted. Only then is it read by itself, which takes as long as the conversion."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except Exception as error:
        from gguf import GGUFReader

        try:
            GGUFReader(file)
        except Exception as broken:
            raise DataError(f"{file}: not a whole GGUF file ({broken}); fetch it again") from error
        raise DataError(
            f"{file}: transformers cannot read it ({type(error).__name__}: {error}); use a GGUF file of an architecture that "
            "transformers reads, with its tokenizer, or the model's own folder of safetensors"
        ) from error
