"""Which kinds are in wheels, packages of their own, so that whoever names one is told how to get it."""

from __future__ import annotations

WORLDS, BRIDGES, LAB, LOGS = "tracewheel-worlds", "tracewheel-bridges", "tracewheel-lab", "tracewheel-logs"
_LOG_FORMATS = (
    "atif", "autogen", "bedrock", "claude_code", "codex", "gemini", "gemini_cli", "google_adk", "inspect", "langchain",
    "langfuse", "langgraph", "langsmith", "mini_swe_agent", "mlflow", "openai_agents", "openhands", "openinference",
    "pydantic_ai", "sharegpt", "smolagents", "sweagent", "table", "tau2", "tau_bench", "toolbench", "vercel_ai", "weave",
    "xlam",
)  # fmt: skip
# By sort, as `core.plugins.load_class` names it: kind -> the distribution that holds it.
WHEELS: dict[str, dict[str, str]] = {
    "environment": {
        **dict.fromkeys(("assistant", "code", "harbor", "math", "patch", "retrieval", "terminal"), WORLDS),
        **dict.fromkeys(("bfcl", "nemo_gym", "openenv", "reasoning_gym", "verifiers"), BRIDGES),
    },
    "verifier": {
        **dict.fromkeys(("assistant", "check_script", "final_files", "harbor", "math", "patch_tests", "unit_tests"), WORLDS),
        "reward_model": LAB,
    },
    "log format": dict.fromkeys(_LOG_FORMATS, LOGS),
    "log file": {"eval": LOGS},
    "world": dict.fromkeys(("assistant", "mixed", "retrieval"), WORLDS),
}


def how_to_get(what: str, kind: str) -> str | None:
    """How a kind of a wheel is installed; None for a kind of no wheel."""
    wheel = WHEELS.get(what, {}).get(kind)
    return wheel and f"not installed: pip install {wheel} (in a checkout: make setup-plugins)"
