"""Whether constraints have to run."""

from memory.alerts.models.alerts import Alert, AlertState
from memory.constraints import applicability
from memory.project import Outline
from memory.versions.models.checkpoints import Checkpoint


def wants_constraints_run(checkpoint: Checkpoint) -> bool:
    """Return whether a run of the constraints could open or resolve an alert."""
    if checkpoint.user.merged_into_id is not None:
        return False  # merged: the remaining user's constraints run instead
    live = Alert.objects.filter(user_id=checkpoint.user_id).exclude(state=AlertState.RESOLVED)
    outline = Outline.from_json(checkpoint.outline)
    return (
        bool(outline.constraints)
        or live.exists()
        or applicability.concern(checkpoint.user, outline)
    )
