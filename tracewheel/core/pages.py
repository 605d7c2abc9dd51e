"""Rendering of the HTML pages: the shared frame and style, and number formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

HERE = Path(__file__).parent
FRAME, STYLE = "frame.html", "page.css"


def render(
    folder: Path,
    name: str,
    styles: Sequence[str],
    filters: Mapping[str, Callable[..., Any]],
    *,
    script_digest: str = "",
    **values: Any,
) -> str:
    """Render a self-contained page.

    Args:
        folder: Folder of the template and its styles.
        name: The template, which extends `frame.html`. All values are escaped.
        styles: Style sheets that follow `page.css`.
        filters: The template's own filters, in addition to `percent` and `thousands`.
        script_digest: SHA-256 in base64 of the one script that may run; without it none may.
        values: Values for the template.
    """
    environment = Environment(
        loader=FileSystemLoader([folder, HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "thousands": thousands, **filters}
    files = [HERE / STYLE, *(folder / name for name in styles)]
    style = "".join(file.read_text(encoding="utf-8") for file in files)
    return environment.get_template(name).render(frame=FRAME, style=Markup(style), script_digest=script_digest, **values)


def percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def thousands(value: int) -> str:
    return f"{value:,}"
