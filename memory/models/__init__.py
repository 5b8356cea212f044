"""The Django models, one module per aggregate."""

from memory.models.alerts import (
    Alert,
    AlertEvent,
    AlertFeedback,
    EventCounter,
    PausedConstraint,
)
from memory.models.backtests import Backtest, BacktestFinding, BacktestUser
from memory.models.checkpoints import Blob, Bytecode, Checkpoint, RecordLocation
from memory.models.erasures import UserErasure
from memory.models.forecasts import Forecast
from memory.models.hosts import SandboxHost
from memory.models.idempotency import IdempotencyKey
from memory.models.llm import LlmCall, LlmSpending
from memory.models.log import EntryOutcome, LogEntry
from memory.models.merges import CopiedEntries, Merge
from memory.models.operations import Alarm, Heartbeat
from memory.models.pauses import Pause
from memory.models.redactions import Redaction
from memory.models.runs import Run
from memory.models.search import SearchBlock, SearchIndex, SearchSegment
from memory.models.staff import StaffAccess, StaffAudit
from memory.models.staff_mail import MailCursor, StaffSubscription
from memory.models.users import Lane, MemoryUser
from memory.models.webhooks import Delivery, DeliveryAttempt, WebhookEndpoint
from memory.models.workspace_constraints import WorkspaceConstraint, WorkspaceConstraintVersion
from memory.models.workspaces import ApiKey, Workspace, WorkspaceUse

__all__ = [
    "Alarm",
    "Alert",
    "AlertEvent",
    "AlertFeedback",
    "ApiKey",
    "Backtest",
    "BacktestFinding",
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
