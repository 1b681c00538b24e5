"""``python -m tests.campaign``."""

import sys

from .command import main

sys.exit(main())
