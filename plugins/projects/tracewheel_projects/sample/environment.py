"""The world of the agent: files in folders, and three tools."""

from __future__ import annotations

from typing import Any

from tracewheel import DataError, Observation, Task, content_hash


def _tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    """A tool as models are shown it, in OpenAI's form."""
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


class FileDesk:
    """Files that the agent moves between folders. State: `{"files": {path: text}}`, with paths as `/inbox/tax1.pdf`."""

    kind = "tracewheel_projects.sample.environment:FileDesk"  # as in the profile
    tool_threads = 0  # calls take no time: no episode waits for another's
    system_prompt = "You are a file-management agent."

    def tools(self) -> list[dict[str, Any]]:
        """What the agent can call."""
        return [
            _tool("list_files", "Lists the names of the files in a folder.", path="The folder."),
            _tool(
                "move_file",
                "Moves a file into a folder and lists what is left where it was.",
                source="The file.",
                destination="The folder to move it into.",
            ),
            _tool("finish", "Ends the work."),
        ]

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        """The task of a log line: `logged` is its field `environment`."""
        if not isinstance(logged.get("files"), dict) or not isinstance(logged.get("goal"), dict):
            raise DataError("'environment' needs 'files' and 'goal', which map paths to texts")
        start, goal = {"files": logged["files"]}, {"files": logged["goal"]}
        name = content_hash([start, goal])  # equal tasks get equal names: they stay on one side of the split
        return Task(
            id=name,
            environment=self.kind,
            family=str(logged.get("family", "files")),  # the gate looks at each family
            tier=1,
            prompt=prompt,
            initial_state=start,
            goal=goal,  # only the verifier sees it
            verifier="tracewheel_projects.sample.verifier:FilesMoved",
            fingerprint=name,
        )

    def reset(self, task: Task) -> None:
        """Begin an episode."""
        self._files: dict[str, str] = dict(task.initial_state["files"])

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        """Carry out a call. A mistake of the agent is an observation, never an exception."""
        match tool:
            case "finish":
                return Observation("done", done=True)
            case "list_files":
                return Observation(self._names(str(args.get("path", "")).rstrip("/")))
            case "move_file":
                source, destination = str(args.get("source", "")), str(args.get("destination", "")).rstrip("/")
                folder, _, name = source.rpartition("/")
                if source not in self._files:
                    return Observation(f"error: no such file {source[:64]}", error=True)
                self._files[f"{destination}/{name}"] = self._files.pop(source)
                return Observation(self._names(folder))
        return Observation(f"error: no tool named {tool[:64]}", error=True)

    def snapshot(self) -> dict[str, Any]:
        """The state, for the verifier."""
        return {"files": dict(sorted(self._files.items()))}

    def _names(self, folder: str) -> str:
        return "\n".join(sorted(path.rpartition("/")[2] for path in self._files if path.startswith(f"{folder}/"))) or "(empty)"
