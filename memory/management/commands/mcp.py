"""`manage.py mcp`: run an MCP server over standard input and output, without the MCP process."""

import os
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import httpx2
from django.core.management.base import BaseCommand, CommandError
from mcp.server.stdio import stdio_server

from memory.integrations.mcp import server
from memory.integrations.mcp.api import TIMEOUT_SECONDS, Api
from memory.integrations.mcp.tools import Caller


class Command(BaseCommand):
    """Serves MCP by calling a UaC server's API with an API key; needs no other access."""

    help = (
        "Run an MCP server on standard input and output, with the tools of a UaC server. For a"
        " server without the MCP process; elsewhere, run `userascode mcp`, which needs"
        " no installation of the server."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add arguments for the server's URL and for the user to limit the tools to."""
        parser.add_argument(
            "--url", default=os.environ.get("UAC_URL"), help="URL of the server; default: $UAC_URL"
        )
        parser.add_argument(
            "--user", help="limit the tools to this user; the tools then take no user_id"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve until the input ends; the API key comes from UAC_KEY, so `ps` doesn't show it."""
        url, key = options["url"], os.environ.get("UAC_KEY")
        if not url or not key or not key.isascii():
            raise CommandError("Set UAC_URL to the server's URL and UAC_KEY to an API key.")

        with httpx2.Client(timeout=TIMEOUT_SECONDS) as client, ThreadPoolExecutor() as threads:
            api = Api(client, url.rstrip("/"), {"Authorization": f"Bearer {key}"}, threads)
            mcp = server.create(lambda _: Caller(api, options["user"]))

            async def serve() -> None:
                async with stdio_server() as (received, sent):
                    await mcp.run(received, sent, mcp.create_initialization_options())

            anyio.run(serve)
