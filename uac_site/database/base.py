"""The module where Django looks for a backend's `DatabaseWrapper`."""

import select

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's wrapper, except that it checks a persistent connection without a query."""

    def is_usable(self) -> bool:
        """Return whether the connection can be used.

        When a server restarts or ends a session, it closes the socket, which can be detected
        without a query. Django would send a statement instead, at the cost of a round trip per
        request and task. Here, a statement is sent only if unexpected data has arrived.
        """
        if self.connection is None or self.connection.closed:
            return False  # an earlier statement found the session closed, so there is no socket
        descriptor = self.connection.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(0) or super().is_usable()
