"""The Docker sandboxes for a server that runs from a checkout."""

import os
from collections.abc import Callable, Mapping

from deploy.embedded.process import ProcessFailed
from workers.sandbox.build import (
    ImageNotBuilt,
    ensure_convert_image,
    ensure_image,
    ensure_typecheck_image,
)
from workers.sandbox.runner import AUTO


def prepare_sandboxes(
    environment: Mapping[str, str], report: Callable[[str], None]
) -> dict[str, str]:
    """Build the sandbox images if a Docker engine responds; return the workers' further variables.

    `environment` contains the workers' variables. If they don't specify a runner, images that
    cannot be built are not an error: the workers are told to use the process runner. If they
    require Docker, ProcessFailed is raised. Reports which sandboxes will be used.
    """
    variables = {**os.environ, **environment}
    chosen = variables.get("UAC_SANDBOX_RUNNER", AUTO)
    if chosen not in (AUTO, "docker"):
        report(f"sandboxes: the {chosen} runner (UAC_SANDBOX_RUNNER)")
        return {}
    if image := variables.get("UAC_SANDBOX_IMAGE"):
        report(f"sandboxes: Docker containers of {image} (UAC_SANDBOX_IMAGE)")
        return {}
    try:
        image = ensure_image(say=report)
        if not variables.get("UAC_TYPECHECK_IMAGE"):
            ensure_typecheck_image(image, say=report)
        if not variables.get("UAC_CONVERT_IMAGE"):
            ensure_convert_image(image, say=report)
    except ImageNotBuilt as error:
        if chosen != AUTO:
            raise ProcessFailed(f"UAC_SANDBOX_RUNNER is {chosen}: {error}") from None
        report(f"sandboxes: the process runner, since Docker is not available ({error})")
        return {"UAC_SANDBOX_RUNNER": "process"}
    report(f"sandboxes: Docker containers of {image}")
    return {}
