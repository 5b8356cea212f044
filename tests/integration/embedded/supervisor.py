"""A program that runs the embedded services, or the whole server, until its standard input ends.

Run as `python supervisor.py {services,system} FOLDER`, with the checkout in PYTHONPATH. It prints
one line of JSON once they run, or the reason why it could not start on standard error.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from deploy.embedded.folder import AlreadyRunning
from deploy.embedded.process import ManagedProcess
from deploy.embedded.services import Services, running_services
from deploy.embedded.system import running_system


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    try:
        if what == "system":
            with running_system(folder) as system:
                run(system.services, system.processes.values())
        else:
            with running_services(folder) as services:
                run(services, (services.postgres.process, services.redis.process))
    except AlreadyRunning as error:
        sys.exit(str(error))


def run(services: Services, processes: Iterable[ManagedProcess]) -> None:
    facts = {
        "data_folder": str(services.data_folder),
        "environment": services.environment,
        "owner_url": services.postgres.owner_url,
        "superuser_url": services.postgres.superuser_url,
        "pids": [process.pid for process in processes],
    }
    print(json.dumps(facts), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
