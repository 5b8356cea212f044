"""What belongs to a whole workspace."""

from collections.abc import Mapping, Sequence
from typing import Any

from userascode import models, params
from userascode._async.transport import AsyncPages, AsyncTransport
from userascode.protocol import given, path, read, write


class AsyncUsers:
    """The users of a workspace."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, page_size: int | None = None) -> AsyncPages[models.User]:
        """Return the users, newest first."""
        request = read("users/", page_size=page_size)
        return AsyncPages(self._transport, request, models.PaginatedUserList)

    async def create(
        self,
        user_id: str,
        *,
        time_zone: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> models.UserDetail:
        """Create a user with an empty log."""
        body = {"user_id": user_id, "time_zone": time_zone, "metadata": metadata}
        return await self._transport.fetch(write("POST", "users/", body), models.UserDetail)


class AsyncSchema:
    """The classes that the workspace prescribes for the projects of all users."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self) -> models.PrescribedClasses:
        """Return the modules, by domain."""
        return await self._transport.fetch(read("schema/"), models.PrescribedClasses)

    async def put(
        self, modules: Mapping[str, str], *, if_match: str | None = None
    ) -> models.PrescribedClasses:
        """Prescribe the classes of these modules, by domain; `render_classes` writes one."""
        request = write("PUT", "schema/", {"modules": modules}, if_match=if_match)
        return await self._transport.fetch(request, models.PrescribedClasses)


class AsyncWorkspaceConstraints:
    """Constraints for all users: written, backtested, approved and rolled out."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, page_size: int | None = None) -> AsyncPages[models.WorkspaceConstraint]:
        """Return the workspace's constraints."""
        request = read("constraints/", page_size=page_size)
        return AsyncPages(self._transport, request, models.PaginatedWorkspaceConstraintList)

    async def get(self, name: str) -> models.WorkspaceConstraintDetail:
        """Return a constraint with its versions."""
        request = read(path("constraints", name))
        return await self._transport.fetch(request, models.WorkspaceConstraintDetail)

    async def create(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        source: str | None = None,
        tests: str | None = None,
        library: str | None = None,
        wait: float | None = None,
    ) -> models.WorkspaceConstraintDetail:
        """Create a constraint, from its source or from the library."""
        body = {
            "name": name,
            "description": description,
            "source": source,
            "tests": tests,
            "library": library,
        }
        request = write("POST", "constraints/", body, wait=wait)
        return await self._transport.fetch(request, models.WorkspaceConstraintDetail)

    async def change(
        self,
        name: str,
        *,
        enabled: bool | None = None,
        percentage: int | None = None,
        description: str | None = None,
        if_match: str | None = None,
    ) -> models.WorkspaceConstraintDetail:
        """Switch a constraint on or off, for all users or for a part of them."""
        body = {"enabled": enabled, "percentage": percentage, "description": description}
        request = write("PATCH", path("constraints", name), body, if_match=if_match)
        return await self._transport.fetch(request, models.WorkspaceConstraintDetail)

    async def coverage(
        self, name: str, *, version: int | None = None, after: int | None = None
    ) -> models.ConstraintCoverage:
        """Return for how many users a constraint applies."""
        request = read(path("constraints", name, "coverage"), version=version, after=after)
        return await self._transport.fetch(request, models.ConstraintCoverage)

    async def add_version(
        self, name: str, *, source: str, tests: str, wait: float | None = None
    ) -> models.VersionDetail:
        """Write a new version, which waits for its approval."""
        body = {"source": source, "tests": tests}
        request = write("POST", path("constraints", name, "versions"), body, wait=wait)
        return await self._transport.fetch(request, models.VersionDetail)

    async def version(self, name: str, number: int) -> models.VersionDetail:
        """Return a version with its source and its verdict."""
        request = read(path("constraints", name, "versions", number))
        return await self._transport.fetch(request, models.VersionDetail)

    async def approve(self, name: str, number: int) -> models.WorkspaceConstraintDetail:
        """Make a version the one that runs."""
        request = write("POST", path("constraints", name, "versions", number, "approve"))
        return await self._transport.fetch(request, models.WorkspaceConstraintDetail)

    async def backtest(
        self,
        name: str,
        number: int,
        *,
        days: int | None = None,
        users: int | None = None,
        by: params.ByEnum | None = None,
    ) -> models.BacktestDetail:
        """Start to run a version on the past of a sample of users."""
        body = {"days": days, "users": users, "by": by}
        request = write("POST", path("constraints", name, "versions", number, "backtests"), body)
        return await self._transport.fetch(request, models.BacktestDetail)

    def library(self, *, page_size: int | None = None) -> AsyncPages[models.LibraryConstraint]:
        """Return the constraints that the server brings along."""
        request = read("constraint-library/", page_size=page_size)
        return AsyncPages(self._transport, request, models.LibraryPage)

    async def library_constraint(self, name: str) -> models.LibraryConstraintDetail:
        """Return a constraint of the library with its source and tests."""
        request = read(path("constraint-library", name))
        return await self._transport.fetch(request, models.LibraryConstraintDetail)

    def precision(self, *, page_size: int | None = None) -> AsyncPages[models.ConstraintPrecision]:
        """Return how useful each constraint's alerts were, by the feedback on them."""
        request = read("constraint-precision/", page_size=page_size)
        return AsyncPages(self._transport, request, models.ConstraintPrecisions)

    def paused(
        self,
        *,
        constraint: str | None = None,
        user_id: str | None = None,
        resumed: bool | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[models.PausedConstraint]:
        """Return the constraints that were paused because they alerted too much."""
        request = read(
            "paused-constraints/",
            constraint=constraint,
            user_id=user_id,
            resumed=None if resumed is None else str(resumed).lower(),
            page_size=page_size,
        )
        return AsyncPages(self._transport, request, models.PaginatedPausedConstraintList)

    async def resume(self, paused_id: str, reason: str) -> models.PausedConstraint:
        """Let a paused constraint alert again."""
        request = write("POST", path("paused-constraints", paused_id, "resume"), {"reason": reason})
        return await self._transport.fetch(request, models.PausedConstraint)


class AsyncBacktests:
    """Constraints that ran on the past."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, page_size: int | None = None) -> AsyncPages[models.Backtest]:
        """Return the backtests, newest first."""
        request = read("backtests/", page_size=page_size)
        return AsyncPages(self._transport, request, models.PaginatedBacktestList)

    async def get(self, backtest_id: str) -> models.BacktestDetail:
        """Return a backtest with its findings; `finished_at` is None while it runs."""
        request = read(path("backtests", backtest_id))
        return await self._transport.fetch(request, models.BacktestDetail)

    async def cancel(self, backtest_id: str) -> models.BacktestDetail:
        """End a backtest early."""
        request = write("POST", path("backtests", backtest_id, "cancel"))
        return await self._transport.fetch(request, models.BacktestDetail)


class AsyncRuns:
    """Single executions of code."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self, run_id: str) -> models.Run:
        """Return a run with its output."""
        return await self._transport.fetch(read(path("runs", run_id)), models.Run)

    async def cancel(self, run_id: str) -> models.Run:
        """End a run early."""
        return await self._transport.fetch(
            write("POST", path("runs", run_id, "cancel")), models.Run
        )

    async def retry(
        self, run_id: str, *, wait: bool = True, timeout: float | None = None
    ) -> models.Run:
        """Execute a run again that failed permanently."""
        request = write("POST", path("runs", run_id, "retry"))
        return await self._transport.settle(request, models.Run, wait=wait, timeout=timeout)


class AsyncErasures:
    """Users who were deleted."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self, erasure_id: str) -> models.Erasure:
        """Return an erasure, which is the proof of the deletion."""
        return await self._transport.fetch(read(path("erasures", erasure_id)), models.Erasure)


class AsyncWebhooks:
    """Endpoints of your product that the server calls. `userascode.webhooks` verifies the calls."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, page_size: int | None = None) -> AsyncPages[models.Endpoint]:
        """Return the endpoints."""
        request = read("webhooks/", page_size=page_size)
        return AsyncPages(self._transport, request, models.PaginatedEndpointList)

    async def get(self, endpoint_id: str) -> models.Endpoint:
        """Return an endpoint."""
        return await self._transport.fetch(read(path("webhooks", endpoint_id)), models.Endpoint)

    async def create(
        self,
        url: str,
        *,
        description: str | None = None,
        event_types: Sequence[params.EventTypesEnum] | None = None,
        alert_kinds: Sequence[params.AlertKindEnum] | None = None,
        least_severity: params.SeverityEnum | None = None,
    ) -> models.EndpointWithSecret:
        """Create an endpoint; its secret is shown this once."""
        body = _endpoint(url, description, event_types, alert_kinds, least_severity)
        request = write("POST", "webhooks/", body)
        return await self._transport.fetch(request, models.EndpointWithSecret)

    async def change(
        self,
        endpoint_id: str,
        *,
        url: str | None = None,
        description: str | None = None,
        event_types: Sequence[params.EventTypesEnum] | None = None,
        alert_kinds: Sequence[params.AlertKindEnum] | None = None,
        least_severity: params.SeverityEnum | None = None,
        enabled: bool | None = None,
        if_match: str | None = None,
    ) -> models.Endpoint:
        """Change an endpoint."""
        body = _endpoint(url, description, event_types, alert_kinds, least_severity)
        body |= given({"enabled": enabled})
        request = write("PATCH", path("webhooks", endpoint_id), body, if_match=if_match)
        return await self._transport.fetch(request, models.Endpoint)

    async def delete(self, endpoint_id: str, *, if_match: str | None = None) -> None:
        """Delete an endpoint."""
        request = write("DELETE", path("webhooks", endpoint_id), if_match=if_match)
        await self._transport.send(request)

    async def rotate_secret(self, endpoint_id: str) -> models.EndpointWithSecret:
        """Replace the secret; messages are signed with both for a day."""
        request = write("POST", path("webhooks", endpoint_id, "rotate-secret"))
        return await self._transport.fetch(request, models.EndpointWithSecret)

    async def test(self, endpoint_id: str) -> models.Delivery:
        """Send a test message; `delivery` shows what became of it."""
        request = write("POST", path("webhooks", endpoint_id, "test"))
        return await self._transport.fetch(request, models.Delivery)

    async def replay(self, endpoint_id: str, since: str) -> models.ReplayResult:
        """Send again what failed since a moment."""
        request = write("POST", path("webhooks", endpoint_id, "replay"), {"since": since})
        return await self._transport.fetch(request, models.ReplayResult)

    def deliveries(
        self,
        endpoint_id: str,
        *,
        state: str | None = None,
        type: str | None = None,
        alert: str | None = None,
        since: str | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[models.Delivery]:
        """Return the messages for an endpoint, newest first."""
        request = read(
            path("webhooks", endpoint_id, "deliveries"),
            state=state,
            type=type,
            alert=alert,
            since=since,
            page_size=page_size,
        )
        return AsyncPages(self._transport, request, models.PaginatedDeliveryList)

    async def delivery(self, endpoint_id: str, delivery_id: str) -> models.DeliveryDetail:
        """Return a message with the attempts to deliver it."""
        request = read(path("webhooks", endpoint_id, "deliveries", delivery_id))
        return await self._transport.fetch(request, models.DeliveryDetail)

    async def replay_delivery(self, endpoint_id: str, delivery_id: str) -> models.Delivery:
        """Send a message again."""
        request = write("POST", path("webhooks", endpoint_id, "deliveries", delivery_id, "replay"))
        return await self._transport.fetch(request, models.Delivery)


def _endpoint(
    url: str | None,
    description: str | None,
    event_types: Sequence[str] | None,
    alert_kinds: Sequence[str] | None,
    least_severity: str | None,
) -> dict[str, Any]:
    """Return the fields of an endpoint that are given."""
    return given(
        {
            "url": url,
            "description": description,
            "event_types": event_types,
            "alert_kinds": alert_kinds,
            "least_severity": least_severity,
        }
    )
