"""A mail server on this machine that fails, hangs and recovers as a test requires."""

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage


@dataclass
class MailServer:
    """A mail server's mails, and its behaviour: "well", "fails", "hangs" or "refuses"."""

    port: int = 0
    behaviour: str = "well"
    connections: int = 0
    closing: threading.Event = field(default_factory=threading.Event)
    mails: list[EmailMessage] = field(default_factory=list)


class _Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        mailbox: MailServer = self.server.mailbox  # type: ignore[attr-defined]
        mailbox.connections += 1
        if mailbox.behaviour == "hangs":
            mailbox.closing.wait(3600)
            return
        self._say("421 not now" if mailbox.behaviour == "fails" else "220 ready")
        while line := self.rfile.readline():
            match line.split()[0].upper():
                case b"RCPT" if mailbox.behaviour == "refuses":
                    self._say("550 no such person")
                case b"DATA":
                    self._say("354 go on")
                    lines = []
                    while (part := self.rfile.readline()) != b".\r\n":
                        lines.append(part.removeprefix(b"."))
                    if mailbox.behaviour == "loses":
                        return
                    mail = message_from_bytes(b"".join(lines), policy=policy.default)
                    assert isinstance(mail, EmailMessage)
                    mailbox.mails.append(mail)
                    self._say("250 taken")
                case b"QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("250 fine")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    mailbox: MailServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect."""


@contextlib.contextmanager
def mail_server() -> Iterator[MailServer]:
    """Run a mail server in this context."""
    with _Server(("127.0.0.1", 0), _Session) as server:
        server.mailbox = MailServer(port=server.server_address[1])
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        thread.start()
        try:
            yield server.mailbox
        finally:
            server.mailbox.closing.set()
            server.shutdown()
            thread.join()
