"""`python -m tools.interop`, with low priority."""

import os
import sys

from tools.interop.cli import main

os.nice(10)
sys.exit(main())
