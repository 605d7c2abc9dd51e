"""The quality report as one HTML file: no script, no external files, light or dark as the browser is set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tracewheel.core.pages import render, thousands

HERE = Path(__file__).parent
QUALITY_PAGE = "quality.html"
WIDTH, HEIGHT = 360, 150
LEFT, RIGHT, TOP, BOTTOM = 36, 8, 10, 32
MOST_LABELS = 6


def quality_page(data: Mapping[str, Any]) -> str:
    """The page for the result of `quality_report`.

    Text from logs is escaped by the template, and a content security policy forbids all scripts.
    """
    return render(HERE, "quality.html", ("quality.css",), {"words": words, "histogram": histogram_chart}, data=data)


def write_quality_page(data: Mapping[str, Any], out: Path) -> Path:
    """Write the page for the contents of a `quality.json` into the folder `out`."""
    page = out / QUALITY_PAGE
    page.write_bytes(quality_page(data).encode("utf-8", errors="replace"))
    return page


def words(name: str) -> str:
    """A name from the data with spaces for underscores."""
    return name.replace("_", " ")


def histogram_chart(histogram: Mapping[str, Any], label: str) -> Markup:
    """A histogram as inline SVG with a tooltip for each bar and a text alternative."""
    counts, start, width = histogram["counts"], histogram["start"], histogram["width"]
    highest = max(counts)
    step = (WIDTH - LEFT - RIGHT) / len(counts)
    bottom = HEIGHT - BOTTOM
    every = -(-len(counts) // MOST_LABELS)
    parts = [
        Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, bottom, bottom),
        Markup('<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>').format(LEFT - 6, TOP + 4, thousands(highest)),
        Markup('<text class="tick" x="{}" y="{}" text-anchor="end">0</text>').format(LEFT - 6, bottom + 4),
    ]
    for index, count in enumerate(counts):
        first, last = start + index * width, start + (index + 1) * width - 1
        named = f"{first:,}" if width == 1 else f"{first:,} to {last:,}"
        height = (bottom - TOP) * count / highest
        x = LEFT + index * step
        parts.append(
            Markup('<rect class="column" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>').format(
                x + 1, bottom - height, max(1.0, step - 2), height, f"{named} {label}: {count:,} episodes"
            )
        )
        if index % every == 0:
            parts.append(
                Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
                    x + step / 2, bottom + 14, _short_number(first)
                )
            )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(Markup('<text class="axis" x="{}" y="{}" text-anchor="middle">{}</text>').format(middle, HEIGHT - 3, label))
    says = (
        f"{label}: from {histogram['least']:,} to {histogram['most']:,}, "
        f"median {histogram['median']:,}, nine in ten up to {histogram['ninth_decile']:,}"
    )
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, says, Markup("").join(parts)
    )


def _short_number(value: int) -> str:
    return f"{value / 1000:.3g}k" if value >= 10_000 else f"{value:,}"
