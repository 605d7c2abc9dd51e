"""The writing forms: how their bodies are read, and what the pages remember of who writes."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tracewheel.core.errors import InputError
from tracewheel.dashboard.guard import Access
from tracewheel.operations.plain_words import plain_words

MOST_BYTES, MOST_FIELDS = 16_384, 20
WHO = "tracewheel_reviewer"
KIND = "application/x-www-form-urlencoded"


class Forged(InputError):
    """A form that this dashboard did not make."""


async def read_form(request: Request, access: Access) -> dict[str, str]:
    """The fields of a form that this dashboard made.

    Raises:
        Forged: its token is not ours.
        InputError: it is too large, or no form.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != KIND:
        raise InputError(f"a form is sent as {KIND}")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise InputError(f"the form is larger than {MOST_BYTES:,} bytes")
    try:
        fields = dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS))
    except ValueError as flaw:  # not UTF-8, or too many fields
        raise InputError(f"the form cannot be read: {flaw}") from flaw
    if not access.allows_form(fields.get("form_token", "")):
        raise Forged("the form is not of this dashboard, or of one that has ended since: open the page again")
    return fields


def remembered(request: Request) -> str:
    """Who wrote last from this browser; "" where nobody did."""
    try:
        return plain_words(unquote(request.cookies.get(WHO, "")), "the name", 80, empty=True)
    except InputError:
        return ""


def leads_to(where: str, who: str) -> Response:
    """The answer to a form that was taken: the page to look at, which a reload does not send again."""
    response = RedirectResponse(where, 303)
    response.set_cookie(WHO, quote(who.strip()), httponly=True, samesite="strict", path="/", max_age=90 * 86_400)
    return response
