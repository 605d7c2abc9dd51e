"""The workspace: an in-memory file tree that an agent tidies with five tools."""

from tracewheel.environments.workspace.environment import WorkspaceEnvironment

__all__ = ["WorkspaceEnvironment"]
