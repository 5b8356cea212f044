"""Where Django looks for models: importing their modules registers them."""

# ruff: noqa: F401
import memory.alerts.models.alerts
import memory.alerts.models.staff_mail
import memory.alerts.models.webhooks
import memory.constraints.models.backtests
import memory.constraints.models.forecasts
import memory.constraints.models.workspace_constraints
import memory.integrations.mcp.models
import memory.kernel.models.hosts
import memory.kernel.models.idempotency
import memory.kernel.models.operations
import memory.kernel.models.pauses
import memory.kernel.models.users
import memory.kernel.models.workspaces
import memory.kernel.staff.models
import memory.llm.models
import memory.log.models.documents
import memory.log.models.entries
import memory.log.models.merges
import memory.log.models.redactions
import memory.privacy.models
import memory.recall.models
import memory.versions.models.checkpoints
import memory.versions.models.runs
