"""Embeddings that a program asks for, passed on to an endpoint that has them."""

from __future__ import annotations

import os
from typing import Any

import httpx
from starlette.responses import Response

from tracewheel.config import EndpointConfig
from tracewheel.gateway.dialects.fields import Fields
from tracewheel.gateway.exchange import Refusal

NONE_HERE = "Embeddings are not served: set rollout.harness.embeddings, or give the program's client a base URL of its own."


async def pass_on(body: Any, config: EndpointConfig | None) -> Response:
    """The endpoint's answer to a request, for its own model, whatever it is.

    Raises:
        Refusal: there is no endpoint, the body is no object, or the endpoint does not answer.
    """
    if config is None:
        raise Refusal("not_found", NONE_HERE, code="unknown_url")
    key = os.environ.get(config.api_key_variable)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    asked = Fields(body).value | {"model": config.model}
    try:
        async with httpx.AsyncClient(timeout=config.timeout) as client:
            answer = await client.post(f"{config.endpoint.rstrip('/')}/embeddings", json=asked, headers=headers)
    except httpx.HTTPError as error:
        raise Refusal("overloaded", f"The endpoint of rollout.harness.embeddings does not answer: {error!r:.200}.") from None
    return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))
