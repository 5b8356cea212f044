"""`python -m tests.images`."""

import sys

from tests.images import main

sys.exit(main())
