"""Worlds: code, terminal, patch, harbor, assistant, retrieval and math, with their verifiers and the sandbox."""
