"""MCP resources: a user's open alerts, and the manifest and files of the newest version."""

import json
import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

from mcp_types import Resource, ResourceTemplate

from memory.integrations.mcp.api import RequestRefused, address
from memory.integrations.mcp.tools import Caller

_URI = re.compile(r"uac://users/(?P<user>[^/]+)/(?:manifest|(?P<alerts>alerts)|files/(?P<path>.+))")
PYTHON, TEXT, JSON = "text/x-python", "text/plain", "application/json"


def alerts_uri(user_id: str) -> str:
    """Return the URI of a user's open alerts, to which clients can subscribe."""
    return f"uac://users/{quote(user_id, safe='')}/alerts"


def templates(caller: Caller) -> Sequence[ResourceTemplate]:
    """Return the URI templates for the resources that the caller can read."""
    user = "{user_id}" if caller.user_id is None else quote(caller.user_id, safe="")
    return [
        ResourceTemplate(
            name="manifest",
            uri_template=f"uac://users/{user}/manifest",
            description="A summary of the project: domains, classes, collections, constraints, open"
            " alerts.",
            mime_type=TEXT,
        ),
        ResourceTemplate(
            name="alerts",
            uri_template=f"uac://users/{user}/alerts",
            description="The user's open alerts. Subscribe to it to be told of new ones.",
            mime_type=JSON,
        ),
        ResourceTemplate(
            name="file",
            uri_template=f"uac://users/{user}/files/{{+path}}",
            description="A file in the project, such as domains/travel/state.py.",
            mime_type=PYTHON,
        ),
    ]


async def listed(caller: Caller) -> Sequence[Resource]:
    """Return the manifest, alerts and files of the user the caller is bound to, if any."""
    if caller.user_id is None:
        return []
    user = f"uac://users/{quote(caller.user_id, safe='')}"
    manifest = Resource(uri=f"{user}/manifest", name="manifest", mime_type=TEXT)
    alerts = Resource(uri=alerts_uri(caller.user_id), name="alerts", mime_type=JSON)
    version = await _head(caller, caller.user_id)
    paths = sorted((await caller.api.get(version))["files"]) if version else []
    files = [
        Resource(uri=f"{user}/files/{quote(path)}", name=path, mime_type=PYTHON) for path in paths
    ]
    return [manifest, alerts, *files]


async def read(caller: Caller, uri: str) -> tuple[str, str]:
    """Return a resource's text and media type; raises RequestRefused if `uri` doesn't exist."""
    match = _URI.fullmatch(uri)
    user = unquote(match["user"]) if match else ""
    if match is None or caller.user_id not in (None, user):
        choices = ", ".join(template.uri_template for template in templates(caller))
        raise RequestRefused(f"No such resource. The available resources are: {choices}.")
    if match["alerts"]:
        page = await caller.api.get(address("users", user, "alerts"), state="open", page_size=500)
        return json.dumps(page["results"], ensure_ascii=False), JSON
    if match["path"] is None:
        return str((await caller.api.get(address("users", user, "manifest")))["text"]), TEXT
    version = await _head(caller, user)
    if version is None:
        raise RequestRefused("This user's project has no version yet, and therefore no files.")
    path = address(*unquote(match["path"]).split("/")).removesuffix("/")
    return str((await caller.api.get(f"{version}files/{path}"))["source"]), PYTHON


async def _head(caller: Caller, user: str) -> str | None:
    """Return the API path of the newest version, or None if there isn't one."""
    version = (await caller.api.get(address("users", user)))["head"]
    return None if version is None else address("users", user, "checkpoints", str(version))
