"""Firefox, driven by WebDriver BiDi (https://w3c.github.io/webdriver-bidi/).

Playwright drives only its own build of Firefox, which is in no package registry.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from subprocess import DEVNULL
from time import monotonic, sleep
from typing import Any

from websockets.sync.client import connect
from websockets.sync.connection import Connection

PROGRAMS = ("firefox-esr", "firefox")
TIMEOUT = 30
"""Seconds to wait for a message from Firefox, and for its start."""
FIND_ELEMENT = """
(target) => new Promise((done, fail) => {
  const timeout = setTimeout(() => fail(new Error(document.body.innerText)), MILLISECONDS);
  const hasText = ({textContent}) => textContent.includes(target.text);
  const search = () => {
    const found = [...document.querySelectorAll(target.selector)].find((element) =>
      [element, ...(element.labels ?? [])].some(hasText));
    if (!found) return requestAnimationFrame(search);
    clearTimeout(timeout);
    done(found);
  };
  search();
})
""".replace("MILLISECONDS", str(TIMEOUT * 500))
"""Script that waits for an element; on timeout, it fails with the text of the page."""


def find_firefox() -> str | None:
    """Return the path of the installed Firefox, if any."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Firefox:
    """A page in Firefox.

    Attributes:
        errors: The error messages of the console, and uncaught exceptions.
    """

    def __init__(self, connection: Connection) -> None:
        self.errors: list[str] = []
        self._connection = connection
        self._ids = count(1)
        self._command("session.new", capabilities={})
        self._command("session.subscribe", events=["log.entryAdded"])
        self._page = self._command("browsingContext.create", type="tab")["context"]

    def open(self, url: str) -> None:
        """Open a URL, and wait until it is loaded."""
        self._command("browsingContext.navigate", context=self._page, url=url, wait="complete")

    def find(self, selector: str, text: str) -> Any:
        """Wait for an element that has this text, or whose label has it; return a reference.

        Raises:
            AssertionError: No such element appears in time.
        """
        target = {"selector": selector, "text": text}
        return self._call(FIND_ELEMENT, {"type": "object", "value": _pairs(target)})

    def click(self, selector: str, text: str) -> None:
        """Click an element as a user does."""
        element = self.find(selector, text)
        self._call("(element) => element.scrollIntoView({block: 'center'})", element)
        origin = {"type": "element", "element": {"sharedId": element["sharedId"]}}
        self._act(
            "pointer",
            {"type": "pointerMove", "x": 0, "y": 0, "origin": origin},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        )

    def type(self, text: str) -> None:
        """Type a text into the element that has the focus."""
        keys = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._act("key", *keys)

    def _act(self, kind: str, *actions: dict[str, Any]) -> None:
        source = {"type": kind, "id": kind, "actions": [*actions]}
        self._command("input.performActions", context=self._page, actions=[source])

    def _call(self, function: str, *arguments: Any) -> Any:
        answer = self._command(
            "script.callFunction",
            functionDeclaration=function,
            arguments=[*arguments],
            awaitPromise=True,
            target={"context": self._page},
        )
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return answer["result"]

    def _command(self, method: str, **parameters: Any) -> Any:
        number = next(self._ids)
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._connection.recv(TIMEOUT))
            if message.get("id") == number:
                assert message["type"] == "success", message
                return message["result"]
            entry = message.get("params", {})
            if entry.get("level") == "error":
                self.errors.append(entry["text"])


def _pairs(members: dict[str, str]) -> list[Any]:
    return [[name, {"type": "string", "value": value}] for name, value in members.items()]


PREFERENCES = {
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "datareporting.policy.dataSubmissionEnabled": False,
    "messaging-system.rsexperimentloader.enabled": False,
}
"""Without these, Firefox contacts Mozilla at every start."""


@contextmanager
def firefox(profile: Path) -> Iterator[Firefox]:
    """Run the installed Firefox with *profile*, an empty folder; yield a page in it."""
    program = find_firefox()
    assert program is not None
    lines = [
        f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
        for name, value in PREFERENCES.items()
    ]
    (profile / "user.js").write_text("".join(lines))
    command = [program, "--headless", "--remote-debugging-port", "0", "--profile", str(profile)]
    with subprocess.Popen(command, stdout=DEVNULL, stderr=DEVNULL) as process:
        try:
            address = _address(profile / "WebDriverBiDiServer.json", process)
            with connect(f"ws://{address}/session", max_size=None) as connection:
                yield Firefox(connection)
        finally:
            process.terminate()


def _address(file: Path, process: subprocess.Popen[bytes]) -> str:
    """Wait for the file that Firefox writes when it listens; return host and port."""
    deadline = monotonic() + TIMEOUT
    while monotonic() < deadline and process.poll() is None:
        with suppress(FileNotFoundError, ValueError):  # not there yet, or not complete
            server = json.loads(file.read_text())
            return f"{server['ws_host']}:{server['ws_port']}"
        sleep(0.05)
    raise AssertionError(f"Firefox does not listen; its exit code is {process.returncode}")
