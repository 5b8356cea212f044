"""The Django models, one module per aggregate."""

from memory.alerts.models.alerts import (
    Alert,
    AlertEvent,
    AlertFeedback,
    EventCounter,
    PausedConstraint,
)
from memory.alerts.models.staff_mail import MailCursor, StaffSubscription
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, WebhookEndpoint
from memory.constraints.models.backtests import Backtest, BacktestUser
from memory.constraints.models.forecasts import Forecast
from memory.constraints.models.workspace_constraints import (
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.kernel.models.hosts import SandboxHost
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.operations import Alarm, Heartbeat
from memory.kernel.models.pauses import Pause
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import ApiKey, Workspace, WorkspaceUse
from memory.kernel.staff.models import StaffAccess, StaffAudit
from memory.llm.models import LlmCall, LlmSpending
from memory.log.models.entries import EntryOutcome, LogEntry
from memory.log.models.merges import CopiedEntries, Merge
from memory.log.models.redactions import Redaction
from memory.privacy.models import UserErasure
from memory.recall.models import SearchBlock, SearchIndex, SearchSegment
from memory.versions.models.checkpoints import Blob, Bytecode, Checkpoint, RecordLocation
from memory.versions.models.runs import Run

__all__ = [
    "Alarm",
    "Alert",
    "AlertEvent",
    "AlertFeedback",
    "ApiKey",
    "Backtest",
    "BacktestUser",
    "Blob",
    "Bytecode",
    "Checkpoint",
    "CopiedEntries",
    "Delivery",
    "DeliveryAttempt",
    "EntryOutcome",
    "EventCounter",
    "Forecast",
    "Heartbeat",
    "IdempotencyKey",
    "Lane",
    "LlmCall",
    "LlmSpending",
    "LogEntry",
    "MailCursor",
    "MemoryUser",
    "Merge",
    "Pause",
    "PausedConstraint",
    "RecordLocation",
    "Redaction",
    "Run",
    "SandboxHost",
    "SearchBlock",
    "SearchIndex",
    "SearchSegment",
    "StaffAccess",
    "StaffAudit",
    "StaffSubscription",
    "UserErasure",
    "WebhookEndpoint",
    "Workspace",
    "WorkspaceConstraint",
    "WorkspaceConstraintVersion",
    "WorkspaceUse",
]
