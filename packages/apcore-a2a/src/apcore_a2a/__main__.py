"""The `apcore-a2a` command, also as `python -m apcore_a2a`."""

import os
import signal
import sys
import threading
from typing import NoReturn

from .command.main import main as run

THREADS_TIMEOUT = 1
"""Seconds that threads get to finish at exit."""


def main() -> int:
    """Run the command as the main program; return the exit code.

    A signal stops the server cleanly even while it starts. At exit, Python waits for threads, and
    the thread of a stuck module never ends: the process exits anyway after THREADS_TIMEOUT, or at
    the next signal.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = run()

    def exit_now(*_: object) -> NoReturn:
        os._exit(code)

    signal.signal(signal.SIGINT, exit_now)
    signal.signal(signal.SIGTERM, exit_now)
    watchdog = threading.Timer(THREADS_TIMEOUT, exit_now)
    watchdog.daemon = True
    watchdog.start()
    return code


if __name__ == "__main__":
    sys.exit(main())
