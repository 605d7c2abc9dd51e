"""What a global adapter was made of: `lineage.json` and the page of the federation's folder, and a run of MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracewheel import DataError, read_json, write_json
from tracewheel_federated.page import write_federation_page
from tracewheel_federated.quarantine import held
from tracewheel_federated.settings import FederationConfig

LINEAGE = "lineage.json"


def write_lineage(settings: FederationConfig) -> dict[str, Any]:
    """Gather the closed steps: rounds with their clients, digests, scores and verdicts; write them, and the page of them."""
    out = Path(settings.out)
    steps = [read_json(file) for file in sorted(out.glob("rounds/*/round.json"))]
    rounds = [step for step in steps if step["work"] == "train"]
    record = {
        "federation": settings.name,
        "settings": settings.model_dump(mode="json", exclude={"server", "clients", "out"}),
        "clients": sorted({name for step in rounds for name in step["clients"]}),
        "rounds": rounds,
        "verdicts": [step for step in steps if step["work"] != "train"],
    }
    write_json(out / LINEAGE, record)
    write_federation_page(record, out, held(out))
    return record


def is_noted(out: Path, step: Mapping[str, Any]) -> bool:
    """Whether the lineage holds a closed step."""
    noted = read_json(out / LINEAGE) if (out / LINEAGE).is_file() else {"rounds": [], "verdicts": []}
    return step in (*noted["rounds"], *noted["verdicts"])


def forgetting(out: Path, client: str) -> dict[str, Any]:
    """The rounds that a client's logs touched, and how to train again without them.

    From its first round on all global adapters hold something of it. The ones before do not, and can be started from.

    Raises:
        DataError: there is no federation in the folder, or the client took no part.
    """
    record = read_json(out / LINEAGE)
    own = [step["round"] for step in record["rounds"] if client in step["clients"]]
    if not own:
        raise DataError(f"{client}: took part in no round of {out}; its clients are {', '.join(record['clients'])}")
    touched = [step for step in record["rounds"] if step["round"] >= own[0]]
    return {
        "client": client,
        "rounds": own,
        "holding": {str(step["round"]): step["next"] for step in touched},
        "clean": own[0] - 1,
        "again": [str(out / "rounds" / f"{step['round']:03d}-*") for step in touched],
    }


def log_to_mlflow(settings: FederationConfig) -> str:
    """Write the rounds to MLflow, as the shared profile's `tracking` says; returns the run's id."""
    import mlflow

    tracking, record = settings.shared().tracking, read_json(Path(settings.out) / LINEAGE)
    mlflow.set_tracking_uri(tracking.uri)
    mlflow.set_experiment(tracking.experiment)
    with mlflow.start_run(run_name=f"federated {settings.name}") as run:
        mlflow.log_params({"clients": ", ".join(record["clients"]), "rounds": settings.rounds, **_flat(settings)})
        for step in record["rounds"]:
            figures = {f"{name}.{key}": score[key] for name, score in step["scores"].items() for key in ("ratio", "cosine")}
            figures |= {"clients": len(step["clients"]), "left_out": len(step["left_out"]), "error": step["error"]}
            mlflow.log_metrics({key: value for key, value in figures.items() if value is not None}, step=step["round"])
        for step in record["verdicts"]:
            gains = {f"{name}.{step['work']}": found["after"] for name, found in step["verdict"]["clients"].items()}
            mlflow.log_metrics(gains, step=step["round"])
        mlflow.log_dict(record, LINEAGE)
        return str(run.info.run_id)


def _flat(settings: FederationConfig) -> dict[str, Any]:
    sections = settings.model_dump(mode="json", include={"local", "aggregation", "defence", "participation"})
    return {f"{name}.{key}": value for name, section in sections.items() for key, value in (section or {}).items()}
