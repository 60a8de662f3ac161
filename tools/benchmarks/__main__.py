"""``python -m tools.benchmarks``."""

from tools.benchmarks.cli import main

raise SystemExit(main())
