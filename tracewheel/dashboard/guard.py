"""Who may ask the dashboard, what its pages may do, and how its writing forms are read."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from tracewheel.core.errors import InputError
from tracewheel.operations.plain_words import plain_words

COOKIE = "tracewheel_dashboard"
LOCAL = ("127.0.0.1", "localhost", "[::1]")
WRITING = ("POST", "PUT", "PATCH", "DELETE")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
NEEDS_TOKEN = (
    "A token is needed: open the address that `tracewheel dashboard` printed at its start, with ?token=… at its end.\n"
)


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        hosts: Names under which the dashboard answers, without port. Another name is refused, so that a page of
            somewhere else cannot read it by a name of its own that leads here.
        token: What a visitor must have; "" where only this machine reaches the dashboard.
        secret: From which the tokens of forms are made.
    """

    hosts: tuple[str, ...] = LOCAL
    token: str = ""
    secret: str = field(default_factory=lambda: secrets.token_hex(32))

    @property
    def form_token(self) -> str:
        """What each writing form carries."""
        return hmac.new(self.secret.encode(), b"form", hashlib.sha256).hexdigest()

    def knows(self, token: str) -> bool:
        """Whether a token is ours, in a time that does not tell how much of it is."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def allows_form(self, token: str) -> bool:
        """Whether a form was made by this dashboard."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.form_token.encode())


Next = Callable[[Request], Awaitable[Response]]


class Guard:
    """Stands before all pages; for `app.middleware("http")`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def __call__(self, request: Request, call_next: Next) -> Response:
        """Answer a request, or refuse it."""
        response = self._refusal(request) or await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    def _refusal(self, request: Request) -> Response | None:
        host = urlsplit(f"//{request.headers.get('host', '')}")
        name = f"[{host.hostname}]" if ":" in (host.hostname or "") else (host.hostname or "")
        if name not in self._access.hosts:
            return PlainTextResponse(f"No dashboard under the name {name!r}.\n", 421)
        if request.method not in ("GET", "POST"):
            return PlainTextResponse(f"{request.method} is not answered: pages are read with GET, forms sent with POST.\n", 405)
        if request.method in WRITING and _foreign(request):
            return PlainTextResponse("Refused: the request comes from a page of another site.\n", 403)
        if not self._access.token:
            return None
        if given := request.query_params.get("token"):
            return self._welcome(request, given)
        if self._access.knows(request.cookies.get(COOKIE, "")):
            return None
        return PlainTextResponse(NEEDS_TOKEN, 401)

    def _welcome(self, request: Request, given: str) -> Response:
        """A cookie for the token, and the same address without it."""
        if request.method != "GET" or not self._access.knows(given):
            return PlainTextResponse(NEEDS_TOKEN, 401)
        query = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        path = "/" + request.url.path.lstrip("/")  # never //host, which leads elsewhere
        response = RedirectResponse(path + (f"?{query}" if query else ""), 303)
        response.set_cookie(COOKIE, given, httponly=True, samesite="strict", secure=request.url.scheme == "https", path="/")
        return response


def _foreign(request: Request) -> bool:
    """Whether a browser says that a page of another origin sent this."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("host")


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
    if who.strip():
        response.set_cookie(WHO, quote(who.strip()), httponly=True, samesite="strict", path="/", max_age=90 * 86_400)
    return response
