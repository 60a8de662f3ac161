"""What holds for all tests."""

import signal

# A shell that begins this process in the background has it ignore SIGINT, and all that it begins.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
