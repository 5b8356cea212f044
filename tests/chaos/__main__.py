"""`python -m tests.chaos`: run seeds one after the other; exit 0 if nothing is violated."""

import argparse
import sys

from tests.chaos.running import SEED, SHORT, long_scale, run_seeds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="so many, one after the other")
    parser.add_argument("--minutes", type=float, help="one long run, with five hundred users")
    parser.add_argument("--short", action="store_true", help="a minute, as in the tests")
    parser.add_argument(
        "--processes",
        action="store_true",
        help="sandboxes are processes: nothing is tried of containers and their engine",
    )
    parser.add_argument("--keep", help="keep logs and journals in this folder")
    given = parser.parse_args()
    scale = long_scale(given.minutes) if given.minutes else SHORT if given.short else SEED
    return run_seeds(
        range(given.seed, given.seed + given.seeds),
        scale,
        containers=not given.processes,
        keep=given.keep,
    )


if __name__ == "__main__":
    sys.exit(main())
