"""The MCP server over standard input and output, whose UaC server does not answer."""

import json
import os
import subprocess
import sys

COMMAND = [sys.executable, "-c", "from userascode.cli import main; main()", "mcp", "--user", "ada"]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def test_each_request_is_refused_and_the_end_of_the_input_ends_it() -> None:
    requests = [INITIALIZE, {**INITIALIZE, "id": 2}]
    done = subprocess.run(
        COMMAND,
        input="".join(f"{json.dumps(one)}\n" for one in requests),
        env={**os.environ, "UAC_URL": "http://127.0.0.1:9", "UAC_KEY": "uac_none"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["id"] for one in answers] == [1, 2]
    assert all("error" in one for one in answers)
