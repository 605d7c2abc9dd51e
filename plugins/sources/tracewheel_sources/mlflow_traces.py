"""Experiments of an MLflow 3 server or store: their traces, with assessments.

`mlflow:[URI/]EXPERIMENT[?filter=TEXT&days=30]`, as in `mlflow:agents` or `mlflow:http://127.0.0.1:5000/agents`. Without a URI
it is MLFLOW_TRACKING_URI; MLflow's own variables hold user, password or token. A trace whose assessments have changed is
fetched again, for `days` days.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tracewheel import ConfigError, InfrastructureError, list_field, object_field
from tracewheel_logs import LoggedScore, judge_of, judged_of
from tracewheel_sources.addresses import number_of, read_address

PAGE = 100
DAYS = 30.0
VARIABLE = "MLFLOW_TRACKING_URI"
# MLflow's own waits for a server that is away add up to minutes.
WAITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4", "MLFLOW_HTTP_REQUEST_TIMEOUT": "60"}
RUNS_ON = "IN_PROGRESS"
DAY = 86_400_000  # milliseconds


class MlflowSource:
    """An experiment's traces.

    Args:
        address: What follows `mlflow:`.

    Raises:
        ConfigError: the address is wrong, or names no store.
    """

    def __init__(self, address: str) -> None:
        place, options = read_address("mlflow", address, ("filter", "days"))
        uri, _, experiment = place.rpartition("/")
        self._uri, self._experiment = uri or os.environ.get(VARIABLE, ""), unquote(experiment)
        self._filter, self._days = options.get("filter", ""), number_of("mlflow", options, "days", DAYS)
        if not self._experiment:
            raise ConfigError(f"mlflow:{address}: name an experiment, as in mlflow:http://127.0.0.1:5000/agents")
        if not self._uri:
            raise ConfigError(f"mlflow:{address}: set {VARIABLE}, or name the store, as in mlflow:http://127.0.0.1:5000/agents")

    def fetch(self, cursor: Any, folder: Path) -> Iterator[Any]:
        """Write traces that have ended, page by page, and older ones whose assessments have changed.

        Raises:
            ConfigError: the experiment does not exist, or the filter is invalid.
            InfrastructureError: the store does not answer.
        """
        for name, value in WAITS.items():
            os.environ.setdefault(name, value)
        from mlflow.exceptions import MlflowException

        import mlflow

        client = mlflow.MlflowClient(tracking_uri=self._uri)
        try:
            found = client.get_experiment_by_name(self._experiment)
        except MlflowException as error:
            raise InfrastructureError(f"mlflow:{self._uri}: does not answer: {error!s:.300}") from error
        if found is None:
            raise ConfigError(f"mlflow: {self._uri} has no experiment '{self._experiment}'")
        try:
            yield from self._pages(client, found.experiment_id, dict((cursor or {}).get("seen", {})), cursor or {}, folder)
        except MlflowException as error:
            raise ConfigError(f"mlflow:{self._uri}, experiment '{self._experiment}': {error!s:.300}") from error

    def _pages(
        self, client: Any, experiment: str, seen: dict[str, list[Any]], cursor: dict[str, Any], folder: Path
    ) -> Iterator[Any]:
        """One commit a page. `seen` has the time and a digest of the assessments of each trace of the last days."""
        now = int(datetime.now(UTC).timestamp() * 1000)
        begin, oldest = int(cursor.get("from", 0)), int(now - self._days * DAY)
        token, number = None, int(cursor.get("number", 0))
        while True:
            page = client.search_traces(
                locations=[experiment],
                filter_string=" AND ".join(filter(None, [f"attributes.timestamp_ms >= {begin}", self._filter])),
                max_results=PAGE,
                order_by=["timestamp_ms ASC"],
                page_token=token,
                include_spans=False,
            )
            lines = []
            for trace in page:
                info = trace.info.to_dict()
                digest = hashlib.sha256(json.dumps(info.get("assessments") or [], sort_keys=True).encode()).hexdigest()[:16]
                if info.get("state") == RUNS_ON or seen.get(trace.info.trace_id, [0, ""])[1] == digest:
                    continue
                seen[trace.info.trace_id] = [trace.info.timestamp_ms, digest]
                lines.append(client.get_trace(trace.info.trace_id).to_json())
                lines += [json.dumps(label) for label in _labels(info)]
            if lines:
                number += 1
                (folder / f"traces-{number:06d}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            token = page.token
            if lines and token:
                yield {"number": number, "from": begin, "seen": seen}
            if not token:
                break
        recent = {name: value for name, value in seen.items() if value[0] >= oldest}
        yield {"number": number, "from": oldest, "seen": recent}


def _labels(info: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """People's verdicts on a trace as lines of outcomes; the trace itself has those of programs and models."""
    for one in list_field(info, "assessments"):
        value = object_field(one, "feedback").get("value")
        score = LoggedScore(one.get("assessment_name"), value, judge_of(object_field(one, "source").get("source_type")))
        if score.judge != "person" or one.get("span_id") or one.get("valid") is False:
            continue
        if (verdict := judged_of([score])) is not None:
            said = {"kind": "label", "said": one.get("last_update_time")}
            yield {"type": "tracewheel.outcome", "id": info["trace_id"], "value": verdict, **said}
