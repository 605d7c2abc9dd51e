"""`tracewheel federated server`: carries out a federation's rounds with the clients that connect."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command

if TYPE_CHECKING:
    from tracewheel import Card


def options(parser: ArgumentParser) -> None:
    parser.add_argument("federation", metavar="FEDERATION", help="YAML file of the federation")
    parser.add_argument(
        "--keys-for", dest="named", action="append", default=[], metavar="CLIENT", help="make this client's keys, and stop"
    )


def run(options: Namespace) -> dict[str, Any]:
    """Carry out all rounds that are not done; or make keys.

    Raises:
        ConfigError: the file is invalid.
        DataError: Flower is not installed.
        InfrastructureError: the federation failed.
    """
    from tracewheel_federated.processes import make_keys, run_rounds, superlink
    from tracewheel_federated.settings import FederationConfig

    settings = FederationConfig.load(options.federation)
    if options.named:
        return {"keys": str(make_keys(settings, options.named)), "clients": options.named}
    make_keys(settings, [])
    with superlink(settings, Path(options.federation)):
        run_rounds(settings)
    return finished(settings)


def finished(settings: Any) -> dict[str, Any]:
    """What came of a federation, told to MLflow too."""
    from tracewheel import read_json
    from tracewheel_federated.provenance import LINEAGE, log_to_mlflow
    from tracewheel_federated.quarantine import held

    out = Path(settings.out)
    record, verdict = read_json(out / LINEAGE), read_json(out / "verdict.json")
    return {
        "adapter": str(out / "final"),
        "rounds": len(record["rounds"]),
        "verdict": verdict,
        "quarantined": held(out),
        "mlflow_run": log_to_mlflow(settings),
        "bytes": sum(sum(step["bytes"].values()) for step in record["rounds"]),
    }


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel import Card, Grid

    if "keys" in result:
        handed = [(name, f"{result['keys']}/clients/{name}") for name in result["clients"]]
        return Card("Keys are made; hand each client its folder, over a safe way", handed)
    verdict = result["verdict"]
    rows = [
        (
            name,
            f"{each['before']:.3f}",
            f"{each['after']:.3f}",
            f"{each['interval'][0]:+.3f} to {each['interval'][1]:+.3f}",
            each["verdict"],
        )
        for name, each in verdict["clients"].items()
    ]
    problems = [f"{kind}: {', '.join(verdict[kind])}" for kind in ("harmed", "undecided") if verdict[kind]]
    problems += [f"quarantined: {name} ({reason})" for name, reason in result["quarantined"].items()]
    found = "not worse at any client" if verdict["promoted"] else "not promoted"
    return Card(
        f"{result['rounds']} rounds: the global adapter is {found}",
        [("adapter", result["adapter"]), ("sent by clients", f"{result['bytes'] / 1e6:.1f} MB")],
        [Grid(["client", "before", "after", "gain (95%)", "verdict"], rows)],
        look_at="; ".join(problems),
        tone="good" if verdict["promoted"] and not problems else "warning",
    )


COMMAND = Command("federated server", "train one adapter with clients that keep their logs", options, run, card)
