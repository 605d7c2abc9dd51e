"""The one screen for texts that try to talk to a judge or to an agent: of logs, and before an LLM judge."""
