"""Classes that a workspace prescribes for its users' projects, which get them with a next version.

No version is made for them alone. Every version from entries or from a proposal first gets what the
project lacks of these classes, and the gate judges both together.
"""

from collections.abc import Mapping
from functools import lru_cache

import structlog

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.project import Edit, EditError, Project, ProjectError
from memory.project.prescribed import adopt, edits_of_modules

logger = structlog.get_logger(__name__)


def prescribe(workspace: Workspace, modules: Mapping[str, str]) -> None:
    """Replace the prescribed classes by those of these schema modules, which are keyed by domain.

    Raises ProjectError or EditError for modules that no project could have.
    """
    edits_of_modules(modules)
    Workspace.objects.filter(pk=workspace.pk).update(schema=dict(modules))


def adopt_prescribed(project: Project, user: MemoryUser) -> list[Edit]:
    """Add to a user's project what it lacks of the prescribed classes; return the edits."""
    try:
        prescribed = _edits(tuple(user.workspace.schema.items()))
    except (ProjectError, EditError) as error:
        # They were valid when they were prescribed, by an earlier release. Nobody's log waits.
        logger.error("prescribed_classes_invalid", workspace=user.workspace_id, error=str(error))
        return []
    return adopt(project, prescribed)


@lru_cache(maxsize=64)
def _edits(modules: tuple[tuple[str, str], ...]) -> tuple[Edit, ...]:
    return tuple(edits_of_modules(dict(modules)))
