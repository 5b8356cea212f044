"""The module in which Django looks for a backend's `DatabaseWrapper`."""

import select

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's wrapper, except that it tests a kept connection without a query."""

    def is_usable(self) -> bool:
        """Return whether the connection can be used.

        A server that restarts or ends a session closes its socket, which is visible here. Django
        would send a statement instead, which costs every request and task a round trip; here a
        statement is sent only if unexpected data has arrived.
        """
        if self.connection is None or self.connection.closed:
            return False  # a statement found that the session had ended: no socket is left
        descriptor = self.connection.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(0) or super().is_usable()
