"""Check the health of a process in this container: `healthcheck.py [URL]` exits 0 if healthy.

The URL is http://HOST:PORT/PATH, or unix:SOCKET to request /_ping from that socket. This script is
run by path and imports nothing from the server, so that a check is cheap.
"""

import http.client
import os
import socket
import sys
from urllib.parse import urlsplit

SECONDS = 5


class OverSocket(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket; the host is the socket's path."""

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self.host)


def main() -> int:
    """Request the URL given on the command line, or else the web process's readiness check.

    Returns the exit status.
    """
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/readyz"
    connection: http.client.HTTPConnection
    if url.startswith("unix:"):
        connection, path = OverSocket(url.removeprefix("unix:")), "/_ping"
    else:
        address = urlsplit(url)
        connection = http.client.HTTPConnection(address.netloc, timeout=SECONDS)
        path = f"{address.path}?{address.query}"
    # Django accepts only requests for one of its own host names.
    host = os.environ.get("ALLOWED_HOSTS", "").split(",")[0].strip().lstrip(".")
    try:
        connection.request("GET", path, headers={"Host": host or "localhost"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"{url}: {error!r}\n")
        return 1
    if status != http.HTTPStatus.OK:
        sys.stderr.write(f"{url}: {status}\n")
    return int(status != http.HTTPStatus.OK)


if __name__ == "__main__":
    sys.exit(main())
