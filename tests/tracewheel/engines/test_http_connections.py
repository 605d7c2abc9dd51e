"""Threads and their connections, against a real server that answers at once."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tracewheel.engines.openai_chat import HttpConnections

MOST, REQUESTS = 4, 400


def test_no_two_threads_use_a_connection_at_once_and_few_are_opened(chat_server):
    server = chat_server(lambda body, number: {"content": str(body["number"])})
    made, in_use, lock = [], Counter(), threading.Lock()

    def make():
        made.append(httpx.Client(timeout=10.0))
        return made[-1]

    connections = HttpConnections(make, MOST)

    def ask(number):
        with connections.lend() as client:
            with lock:
                in_use[id(client)] += 1
                assert in_use[id(client)] == 1 and in_use.total() <= MOST
            reply = client.post(
                f"{server.url}/chat/completions",
                json={"messages": [{"role": "user", "content": "?"}], "model": "m", "number": number},
            )
            with lock:
                in_use[id(client)] -= 1
        return reply.json()["choices"][0]["message"]["content"]

    with ThreadPoolExecutor(4 * MOST) as pool:
        assert list(pool.map(ask, range(REQUESTS))) == [str(number) for number in range(REQUESTS)]
    assert len(made) <= MOST
    connections.close()
    assert all(client.is_closed for client in made)


def test_a_connection_is_lent_again_after_an_error():
    connections = HttpConnections(httpx.Client, 1)
    with pytest.raises(httpx.TransportError), connections.lend() as client:
        client.get("http://127.0.0.1:9/")
    with connections.lend() as again:
        assert again is client
    connections.close()
    with pytest.raises(httpx.TransportError, match="closed"), connections.lend():
        pass
