"""The key of the ingest stage holds the readers that a profile's format names, and no others."""

import pytest

from tasks.engine.kinds import code_of
from tracewheel.config import load_config

ROAD = ("tracewheel.traces.ingest",)


@pytest.mark.parametrize(
    ("format", "held", "left_out"),
    [
        ("auto", ["weave", "mlflow", "bedrock", "openinference", "inspect_eval"], []),
        ("weave", ["weave"], ["mlflow", "bedrock", "langfuse"]),
        ("openai", ["bedrock", "gemini", "inspect_eval"], ["weave", "mlflow"]),
        ("otel", ["otel"], ["weave", "mlflow", "openinference", "bedrock"]),
    ],
)
def test_the_readers_of_a_format_are_in_the_key(format, held, left_out):
    code = code_of(ROAD, load_config("configs/tiny.yaml", [f"ingest.format={format}"]), ("ingest",)).modules
    assert {f"tracewheel_logs.{name}" for name in held} <= set(code)
    assert {f"tracewheel_logs.{name}" for name in left_out}.isdisjoint(code)
