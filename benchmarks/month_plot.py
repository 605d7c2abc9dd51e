"""The plot of a simulated month; used by `month.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = {"promoted": "tab:green", "refused": "tab:gray"}


def draw(result: dict[str, Any], path: Path) -> None:
    """Champion on the exam, gates, time and disk by day."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    days = result["days"]
    numbers = [day["day"] for day in days]
    figure, (success, seconds, disk) = plt.subplots(3, 1, figsize=(9, 9), sharex=True)
    success.step(numbers, [day["exam"]["success"] for day in days], where="mid", color="black", label="champion, fixed exam")
    for family in days[-1]["exam"]["by_family"]:
        rates = [day["exam"]["by_family"].get(family) for day in days]
        success.step(numbers, rates, where="mid", alpha=0.35, linewidth=1, label=family)
    for verdict, colour in COLOURS.items():
        judged = [day for day in days if (day.get("gate") or {}).get("verdict") == verdict]
        rates = [day["success"].get("rl") for day in judged]
        success.plot([day["day"] for day in judged], rates, "o", color=colour, label=f"challenger, held out: {verdict}")
    success.set_ylabel("success")
    success.set_ylim(0, 1.02)
    success.legend(fontsize=7, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 0.22))
    bottom = [0.0] * len(days)
    for stage in ("ingest", "curate", "warm_start", "rollout", "update", "evaluate"):
        values = [(day.get("seconds_by_stage") or {}).get(stage, 0.0) for day in days]
        seconds.bar(numbers, values, bottom=bottom, label=stage.replace("_", " "))
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    seconds.plot(numbers, [day["seconds"] for day in days], "k.", label="the day's wall clock")
    seconds.set_ylabel("seconds")
    seconds.legend(fontsize=7, ncols=4)
    for kind in ("store", "records", "prefect", "mlflow", "spool"):
        disk.plot(numbers, [day["bytes"][kind] / 1e6 for day in days], label=kind)
    disk.set_ylabel("MB")
    disk.set_xlabel("day")
    disk.legend(fontsize=7, ncols=5)
    for axis in (success, seconds, disk):
        axis.grid(axis="y", alpha=0.3)
        for day in days:
            if day["trouble"]:
                axis.axvline(day["day"], color="tab:red", alpha=0.25, linewidth=1)
    for day in days:
        if day["trouble"]:
            success.annotate(day["trouble"], (day["day"], 0.03), rotation=90, fontsize=7, color="tab:red", ha="right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
