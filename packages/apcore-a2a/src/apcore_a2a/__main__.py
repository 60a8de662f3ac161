"""The `apcore-a2a` command, also as `python -m apcore_a2a`."""

import os
import signal
import sys
import threading
from typing import NoReturn

from .command.main import main as run

PATIENCE = 1
"""Seconds that threads get to end in, when everything else has ended."""


def main() -> int:
    """Run the command as a process of its own; the exit code.

    A signal before the server listens ends it as cleanly as one behind that. A module that
    runs on in its thread would keep the process for ever: it is left PATIENCE, and none when
    there is another signal.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = run()

    def leave(*_: object) -> NoReturn:
        os._exit(code)

    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGTERM, leave)
    watchdog = threading.Timer(PATIENCE, leave)
    watchdog.daemon = True
    watchdog.start()
    return code


if __name__ == "__main__":
    sys.exit(main())
