"""The module in which Django looks for a backend's `DatabaseWrapper`."""

import select

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, but asks whether a kept connection is there without asking the database."""

    def is_usable(self) -> bool:
        """Tell whether the connection can be used.

        A server that restarts or ends a session closes its socket, which can be seen here. The
        statement that Django sends instead costs every request and task an exchange. It is sent
        where something has come that nobody waits for.
        """
        if self.connection is None or self.connection.closed:
            return False  # a statement has found that it ended: there is no socket any more
        descriptor = self.connection.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(0) or super().is_usable()
