"""The `apcore-a2a` command, also as `python -m apcore_a2a`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
