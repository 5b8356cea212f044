"""The gate's tests begin with the same steps as those of commits."""

from tests.integration.commits.conftest import (
    append,
    checkpoint,
    propose,
    say,
    source_of,
    verdicts,
)

__all__ = ["append", "checkpoint", "propose", "say", "source_of", "verdicts"]
