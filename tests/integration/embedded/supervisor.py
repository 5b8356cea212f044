"""A program that runs the embedded services until its standard input ends.

Run as `python supervisor.py FOLDER`, the checkout in PYTHONPATH. It prints one line of JSON once
they run, and what kept it from starting on standard error.
"""

import json
import sys
from pathlib import Path

from uac_site.embedded.folder import AlreadyRunning
from uac_site.embedded.services import running_services


def main() -> None:
    try:
        with running_services(Path(sys.argv[1])) as services:
            print(
                json.dumps(
                    {
                        "data_folder": str(services.data_folder),
                        "environment": services.environment,
                        "owner_url": services.postgres.owner_url,
                        "superuser_url": services.postgres.superuser_url,
                        "pids": {
                            process.name: process.pid
                            for process in (services.postgres.process, services.redis.process)
                        },
                    }
                ),
                flush=True,
            )
            sys.stdin.read()
    except AlreadyRunning as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
