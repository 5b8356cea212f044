"""What Claude's memory tool does with files, run in an environment that has Anthropic's SDK."""

import json

from anthropic.lib.tools import ToolError
from userascode_agents import Memory
from userascode_agents.claude import UserMemoryTool

tool = UserMemoryTool(Memory("grace"))


def run(command: str, **arguments: object) -> str:
    """Run a command as the SDK does; return its result, or its error."""
    try:
        return str(tool.call({"command": command, **arguments}))
    except ToolError as error:
        return f"ERROR {error}"


STATE = "/memories/domains/work/state.py"
RECORD = 'name="report", days=3, sources=(1,)'
CORRECTED = 'name="annual report", days=3, sources=(1, 2)'
NOTES = "/memories/notes/food.md"
shown = {
    "folder": run("view", path="/memories"),
    "state": run("view", path=STATE),
    "accepted": run("str_replace", path=STATE, old_str=RECORD, new_str=CORRECTED),
    "refused": run("str_replace", path=STATE, old_str="days=3", new_str="days=4000"),
    "created": run("create", path=NOTES, file_text="Ada likes tea.\n"),
    "again": run("create", path=NOTES, file_text="Ada likes tea.\n"),
    "inserted": run("insert", path=NOTES, insert_line=1, insert_text="And rice."),
    "replaced": run("str_replace", path=NOTES, old_str="tea", new_str="coffee"),
    "renamed": run("rename", old_path=NOTES, new_path="/memories/food.md"),
    "read": run("view", path="/memories/food.md", view_range=[1, 2]),
    "gone": run("view", path=NOTES),
    "deleted": run("delete", path="/memories/food.md"),
    "outside": run("view", path="/etc/passwd"),
    "root": run("delete", path="/memories"),
}
print(json.dumps(shown))
