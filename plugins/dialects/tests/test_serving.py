"""A served policy: feedback comes by the ids of this wheel's dialects."""

import json

import anthropic
import httpx
import openai
import pandas

from tests.tracewheel.conftest import versions  # noqa: F401
from tests.tracewheel.gateway.test_serving import KEY, serving  # noqa: F401
from tracewheel.config import IngestConfig
from tracewheel.gateway.server import GatewayServer
from tracewheel.gateway.serving_routes import serving_routes
from tracewheel.traces.incremental import ingest_new


def test_feedback_comes_by_the_ids_that_real_clients_hold(serving, tmp_path):  # noqa: F811
    door, config = serving(), IngestConfig(paths=(str(tmp_path / "log"),))
    with GatewayServer(door, routes=serving_routes(door)) as server, httpx.Client(base_url=server.url()) as http:
        client = openai.OpenAI(base_url=server.openai_url(), api_key=KEY, max_retries=0)
        theirs = anthropic.Anthropic(base_url=server.url(), api_key=KEY, max_retries=0)
        asked = {"model": "policy", "max_tokens": 20, "messages": [{"role": "user", "content": "Messages"}]}
        ids = client.responses.create(model="policy", input="Responses").id, theirs.messages.create(**asked).id
        assert [one.partition("served-")[0] for one in ids] == ["resp_", "msg_"]
        door.end_idle(0)
        for number, one in enumerate(ids):
            said = {"id": one, "value": number}
            assert http.post("/v1/feedback", json=said, headers={"x-api-key": KEY}).json()["taken"]
    report = ingest_new(config, tmp_path / "ingested")
    assert report["kept"] == 2 and report["outcomes"]["known"]["thumb"] == 2
    frame = pandas.read_parquet(tmp_path / "ingested/traces.parquet")
    found = {json.loads(row["messages"])[0]["content"]: row["outcome"] for row in frame.to_dict("records")}
    assert found == {"Responses": 0.0, "Messages": 1.0}
