"""Claude's memory tool (`memory_20250818`): `/memories` is the user's project.

Its Python files are those of the newest version; a write is a change that the gate judges, and
what the gate finds comes back as the tool's error. Other files, such as notes in Markdown, are
records of the collection `memory.files`.
"""

from typing import Any, cast

from anthropic import beta_tool
from anthropic.lib.tools import BetaAbstractMemoryTool, ToolError
from anthropic.types.beta import (
    BetaMemoryTool20250818Command,
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)
from userascode import UserAsCodeError, problems

from userascode_agents.memory import Memory

ROOT = "/memories"
# Seconds until what is written can be read.
WAIT = 25.0


class UserMemoryTool(BetaAbstractMemoryTool):
    """The tool `memory` of Claude for one user."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory
        self.user = memory.user

    def execute(self, command: BetaMemoryTool20250818Command) -> Any:
        """Run a command; what the server refuses is the tool's error."""
        try:
            return self.memory.send(lambda: super(UserMemoryTool, self).execute(command))
        except problems.GateRefused as refused:
            raise ToolError(_findings(refused)) from refused
        except UserAsCodeError as error:
            raise ToolError(str(error)) from error

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Return a file with line numbers, or the paths in a folder."""
        path = _inner(command.path)
        paths = self._paths()
        if path in paths:
            lines = self._read(path).split("\n")
            first, last = command.view_range or (1, -1)
            shown = list(enumerate(lines, 1))[first - 1 : None if last == -1 else last]
            numbered = (f"{number:6}\t{line}" for number, line in shown)
            return "\n".join(
                [f"Here's the content of {command.path} with line numbers:", *numbered]
            )
        below = [one for one in paths if not path or one.startswith(f"{path}/")]
        if path and not below:
            raise ToolError(f"The path {command.path} does not exist. Please provide a valid path.")
        return "\n".join([f"Here're the files in {command.path}:", *(f"{ROOT}/{p}" for p in below)])

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Write a new file."""
        path = _inner(command.path)
        if path in self._paths():
            raise ToolError(f"File {command.path} already exists")
        self._write(path, command.file_text)
        return f"File created successfully at: {command.path}"

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that is in a file once."""
        text = self._read(_inner(command.path))
        if (count := text.count(command.old_str)) != 1:
            raise ToolError(
                f"No replacement was performed: old_str appears {count} times in {command.path}."
            )
        self._write(_inner(command.path), text.replace(command.old_str, command.new_str))
        return "The memory file has been edited."

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text after a line."""
        lines = self._read(_inner(command.path)).splitlines()
        if not 0 <= command.insert_line <= len(lines):
            raise ToolError(f"Invalid `insert_line`: it must be within [0, {len(lines)}].")
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        self._write(_inner(command.path), "\n".join(lines) + "\n")
        return f"The file {command.path} has been edited."

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a file or a folder, as far as the gate allows it."""
        path = _inner(command.path)
        paths = [one for one in self._paths() if one == path or one.startswith(f"{path}/")]
        if not paths or not path:
            raise ToolError(f"The path {command.path} does not exist or cannot be deleted")
        for one in paths:
            self._write(one, None)
        return f"Successfully deleted {command.path}"

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Rename a file."""
        old, new = _inner(command.old_path), _inner(command.new_path)
        if new in self._paths():
            raise ToolError(f"The destination {command.new_path} already exists")
        self._write(new, self._read(old))
        self._write(old, None)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def _paths(self) -> list[str]:
        head = self.user.details().head
        project = self.user.checkpoints.get(head).files if head is not None else {}
        return sorted([*project, *self._notes()])

    def _notes(self) -> dict[str, int]:
        """Return the files that are records, each with the entry that has its text."""
        try:
            records = self.user.records("memory.files").all()
        except problems.NotFound:
            return {}
        return {record.key: max(record.sources) for record in records}

    def _read(self, path: str) -> str:
        if path not in self._paths():
            raise ToolError(f"The path {ROOT}/{path} does not exist. Please provide a valid path.")
        if path.endswith(".py"):
            return self.user.checkpoints.file(cast("int", self.user.details().head), path).source
        entry = self.user.entries.get(self._notes()[path])
        return str((entry.data or {})["data"]["text"])

    def _write(self, path: str, text: str | None) -> None:
        """Write a file; None deletes it."""
        if path.endswith(".py"):
            files = cast("dict[str, str]", {path: text})
            self.user.checkpoints.propose(files=files, version=self.user.details().head)
            return
        content = {"retired": True} if text is None else {"data": {"text": text}}
        file = {"kind": "record", "domain": "memory", "type": "File", "key": path, **content}
        [entry] = self.user.add(cast("Any", file), wait=WAIT).entries
        if entry.state == "rejected":
            raise ToolError(entry.reason or "The file was rejected.")


def tools(memory: Memory) -> list[Any]:
    """Return the tools: remember, recall, compute, alerts, and Claude's memory."""
    return [UserMemoryTool(memory), *map(beta_tool, memory.tools)]


def _inner(path: str) -> str:
    """Return a path below /memories."""
    parts = path.removeprefix(ROOT).strip("/").split("/")
    if not path.startswith(ROOT) or ".." in parts:
        raise ToolError(f"Path must start with {ROOT}, got: {path}")
    return "/".join(parts)


def _findings(refused: problems.GateRefused) -> str:
    """Return what the gate found, with the fixes."""
    verdict = refused.answer.verdict
    checks = verdict.checks if verdict is not None else []
    lines = [
        f"- {finding.path or ''}: {finding.message} {finding.fix or ''}"
        for check in checks
        for finding in check.findings
    ]
    return "\n".join([f"The gate refused the change. {refused.detail}", *lines])
