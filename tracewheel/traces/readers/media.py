"""Placeholders for what a policy of text cannot see: images, audio, video and files in messages, as kind, size and digest."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

# What a part's type, or else its only key, says that it is.
KINDS = {
    **dict.fromkeys(("image", "image_url", "input_image", "computer_screenshot", "localImage", "image_asset_pointer"), "image"),
    **dict.fromkeys(("audio", "input_audio", "audio_url", "audio_asset_pointer"), "audio"),
    **dict.fromkeys(("video", "video_url"), "video"),
    **dict.fromkeys(("file", "input_file", "document", "pdf", "media", "blob", "resource", "resource_link"), "file"),
    "container_upload": "file",
}
KEYS = {"inlineData": "file", "inline_data": "file", "fileData": "file", "file_data": "file"}
KEYS |= {kind: kind for kind in ("image", "audio", "video")} | {"document": "file"}
TYPES = ("media_type", "mediaType", "mimeType", "mime_type", "contentType", "format")
DATA = ("data", "url", "base64", "bytes", "blob", "uri", "fileUri", "file_uri", "file_id", "asset_pointer", "path")
HOLDERS = ("source", "resource", *KINDS, *KEYS)
DEEPEST = 4


def placeholder(part: dict[str, Any]) -> str | None:
    """What stands for a part that is not text, as in `[image, image/png, 5120 bytes, sha256 0123456789abcdef]`.

    None for any other part, and for one without anything in it. Of a part that lies elsewhere the digest is that of its
    address. A file that is text is text.
    """
    kind = part.get("type") or part.get("content_type")
    named = KINDS.get(kind) if isinstance(kind, str) else next((KEYS[key] for key in part if key in KEYS), None)
    if named is None:
        return None
    leaves = list(_leaves(part, 0))
    mime = next((value for key, value in leaves if key in TYPES), "")
    text = next((value for key, value in leaves if key == "text"), None)
    data = next((value for key, value in leaves if key in DATA or key in HOLDERS), "")
    if named == "file" and (text is not None or mime.startswith("text/")) and not data.startswith(("data:", "http", "file:")):
        return data if text is None else text
    if not data:
        return f"[{named}, not in the log]" if len(part) > 1 else None
    if data.startswith("data:"):
        head, _, data = data.partition(",")
        mime = head[len("data:") :].partition(";")[0]
    try:
        raw = base64.b64decode(data, validate=True)
        size = f"{len(raw)} bytes"
    except (binascii.Error, ValueError):
        raw, size = data.encode("utf-8", "replace"), "not in the log"
    about = [named, *([mime] if "/" in mime else []), size, f"sha256 {sha256(raw).hexdigest()[:16]}"]
    return f"[{', '.join(about)}]"


def _leaves(part: dict[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    """The texts in a part, and in the objects in it that hold its data."""
    for key, value in part.items():
        if isinstance(value, str) and value:
            yield key, value
        elif isinstance(value, dict) and key in HOLDERS and depth < DEEPEST:
            yield from _leaves(value, depth + 1)
