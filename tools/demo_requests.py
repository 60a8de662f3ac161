"""Wait until the demo's server is healthy, then print its address and requests to try.

`demo_requests.py PORT` stops waiting when its parent process, the server, has ended.
`demo_requests.py --is-free PORT` only checks whether the port is free.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

TIMEOUT = 60.0  # seconds
METADATA = {"skillId": "text.stats"}
INPUTS = {"text": "The quick brown fox jumps over the lazy dog."}

REQUESTS: dict[str, dict[str, Any]] = {
    "A2A 1.0": {
        "method": "SendMessage",
        "params": {
            "message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"data": INPUTS}]},
            "metadata": METADATA,
        },
    },
    "A2A 0.3": {
        "method": "message/send",
        "params": {
            "message": {
                "kind": "message",
                "messageId": "m1",
                "role": "user",
                "parts": [{"kind": "data", "data": INPUTS}],
            },
            "metadata": METADATA,
        },
    },
}


def is_healthy(base: str) -> bool:
    """Return whether the server at *base* answers its health check."""
    try:
        # Requests to this machine must not go through a configured proxy.
        with build_opener(ProxyHandler({})).open(f"{base}/health", timeout=1) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


def wait_until_healthy(base: str) -> bool:
    """Return whether the server at *base*, our parent process, became healthy in time."""
    server, deadline = os.getppid(), time.monotonic() + TIMEOUT
    while os.getppid() == server and time.monotonic() < deadline:
        if is_healthy(base):
            return True
        time.sleep(0.1)
    return False


def curl(base: str, version: str) -> str:
    """Return the command that sends the request of protocol *version*."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, **REQUESTS[version]})
    header = " -H 'A2A-Version: 1.0'" if version == "A2A 1.0" else ""
    return f"curl -s {base}/ -H 'Content-Type: application/json'{header} -d '{body}'"


def client_command(base: str) -> str:
    """Return the command that sends the same request with this project's client."""
    command = os.path.relpath(Path(sys.executable).with_name("apcore-a2a"))
    return f"{command} call {base} {METADATA['skillId']} --input '{json.dumps(INPUTS)}'"


def is_free(port: int) -> bool:
    """Return whether *port* can be bound on 127.0.0.1; print the reason if not."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        print(f"demo: port {port} is not available: {error.strerror}", file=sys.stderr)
        return False
    return True


def main(*arguments: str) -> int:
    """Print the requests, or check the port; return the exit code."""
    port = int(arguments[-1])
    if arguments[0] == "--is-free":
        return 0 if is_free(port) else 1
    base = f"http://127.0.0.1:{port}"
    if not wait_until_healthy(base):
        return 1
    lines = ["", f"To try the agent's skills in a browser, open {base}/explorer"]
    lines += [f"\nRequests to send to {base} from another terminal:"]
    lines += [f"\n# our client\n{client_command(base)}"]
    lines += [f"\n# {version}\n{curl(base, version)}" for version in REQUESTS]
    print(*lines, "\nPress Ctrl+C to stop.\n", sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
