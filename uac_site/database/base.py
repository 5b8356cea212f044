"""The module in which Django looks for a backend's `DatabaseWrapper`."""

import select

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's wrapper, but it tests a kept connection without asking the database."""

    def is_usable(self) -> bool:
        """Return whether the connection can be used.

        A server that restarts or ends a session closes its socket, which is visible here. The
        statement that Django sends instead costs every request and task a round trip. It is only
        sent if unexpected data has arrived.
        """
        if self.connection is None or self.connection.closed:
            return False  # a statement has found that it ended: there is no socket any more
        descriptor = self.connection.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(0) or super().is_usable()
