"""The provider for MemoryBench: its types, and a conversation through a real server."""

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.harness import new_client
from deploy.embedded.system import running_system
from tests.typescript_client import NODE, PACKAGE, require_packages

pytestmark = pytest.mark.extended

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "memorybench"
COMPILER = PACKAGE / "node_modules" / "typescript" / "bin" / "tsc"
# What MemoryBench does with a provider for one question.
DRIVER = """
import { UserAsCodeProvider } from "./providers/userascode/index.js"
const [baseUrl, apiKey] = process.argv.slice(2)
const message = (role, content) => ({ role, content, speaker: role === "user" ? "Ada" : "Bob" })
const sessions = [
  {
    sessionId: "one",
    messages: [message("user", "I adopted a greyhound called Comet."), message("assistant", " ")],
    metadata: { date: "2023-05-08T13:56:00" },
  },
  { sessionId: "two", messages: [message("assistant", "Nice weather!")] },
]
const containerTag = "conv-1 q/3"
const provider = new UserAsCodeProvider()
await provider.initialize({ apiKey, baseUrl: `${baseUrl}/`, tokens: "500" })
const first = await provider.ingest(sessions, { containerTag })
const again = await provider.ingest(sessions.slice(0, 1), { containerTag })
const progress = []
await provider.awaitIndexing(first, containerTag, (one) => progress.push(one.completedIds.length))
const question = "What is Ada's dog called?"
const results = await provider.search(question, { containerTag, limit: 10 })
const prompt = provider.prompts.answerPrompt(question, results, "2023-06-01")
await provider.clear(containerTag)
await provider.clear(containerTag)
let failure = ""
await provider.search("gone?", { containerTag }).catch((error) => (failure = error.message))
console.log(JSON.stringify({ first, again, progress, results, prompt, failure }))
"""


def test_conversation_is_ingested_once_found_and_cleared(tmp_path: Path) -> None:
    require_packages()
    command: list[str | Path] = [NODE, COMPILER, "--project", FOLDER, "--outDir", tmp_path]
    command += ["--rootDir", FOLDER / "src"]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stdout
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "driver.js").write_text(DRIVER)

    with running_system(sandbox_workers=0) as system:
        client = new_client(system, "memorybench", "read", "write", "manage")
        arguments: list[str | Path] = [NODE, tmp_path / "driver.js", client.base_url, client.key]
        ran = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=300)
        assert ran.returncode == 0, ran.stderr
        users = client.get("users/")[1]["results"]

    told = json.loads(ran.stdout)
    assert len(told["first"]["documentIds"]) == 2
    assert told["again"]["documentIds"] == told["first"]["documentIds"][:1]
    assert told["progress"] == [0, 2]
    [result] = told["results"]
    assert "(2023-05-08, Ada) I adopted a greyhound called Comet." in result["text"]
    assert result["text"] in told["prompt"]
    assert "Today is 2023-06-01." in told["prompt"]
    assert users == []
    assert "404" in told["failure"]
