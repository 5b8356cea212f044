"""The ASGI entry point for the `mcp` process, which serves agents and the event stream.

Like the WSGI entry point, it refuses to start if the system checks find an error.
"""

from uac_site.wsgi import application as wsgi

from memory.integrations.mcp import web  # isort: skip - needs the apps, which the line above loads
from uac_site.unread_bodies import announce_closing_asgi  # isort: skip

application = announce_closing_asgi(web.application(wsgi))
