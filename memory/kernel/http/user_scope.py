"""The base of all views below `/v1/users/{user_id}/`."""

from collections.abc import Collection

import structlog
from django.http import Http404
from rest_framework.permissions import SAFE_METHODS

from memory.kernel.database.statements import Statement
from memory.kernel.http.authentication import handler_name, principal_of
from memory.kernel.http.filters import StrictView
from memory.kernel.models.users import MemoryUser, user_id_fault
from memory.kernel.users import WITH_HEAD, find_user, refuse_merged
from memory.kernel.workspaces import reaches


class UserScopedView(StrictView):
    """Base class for views below `/v1/users/{user_id}/`."""

    certain_users = True
    # Operations allowed for a merged user, besides those that read.
    of_merged: Collection[str] = ()

    def memory_user(self, read: Statement[MemoryUser] = WITH_HEAD) -> MemoryUser:
        """Return the user in the URL.

        `read` selects the columns to read; by default, all columns except the head's large ones.
        Raises Http404 if the caller has access to no such user, and UserMerged if the user was
        merged and the method is not allowed for merged users.
        """
        principal = principal_of(self.request)
        user = find_user(principal.workspace, self.kwargs["user_id"], read)
        if user is None or not reaches(principal.key, user):
            if fault := user_id_fault(self.kwargs["user_id"]):
                raise Http404(f"No user has this id. {fault}")
            raise Http404(
                "There is no such user in this workspace. Create the user first: POST /v1/users/,"
                " or `userascode users create`."
            )
        is_read = self.request.method in SAFE_METHODS
        if not is_read and handler_name(self.request, self) not in self.of_merged:
            refuse_merged(user)
        structlog.contextvars.bind_contextvars(user=user.pk)
        return user
