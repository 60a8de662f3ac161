"""A PostgreSQL of the tests' own: on loopback, in a scratch folder, unprivileged."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDERS = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
ACCOUNTS = ("postgres", "nobody")


def find(name: str) -> str | None:
    """A program of PostgreSQL's, wherever Debian or PATH has it."""
    return shutil.which(name, path=os.pathsep.join([*map(str, FOLDERS), os.environ["PATH"]]))


class Database:
    """A server, and its address.

    Args:
        folder: Where its files are to be.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self.port = _free_port()
        self.url = f"postgresql://agent@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """Its process, while it runs; those of its connections are children of that."""
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def create(self) -> None:
        """Make its files."""
        self._folder.chmod(0o777)
        self._run("initdb", "--username=agent", "--auth=trust", "--encoding=UTF8")

    @property
    def owner(self) -> int:
        """The number of the user whose its files are."""
        return self._data.stat().st_uid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder}"
        self._run("pg_ctl", "--wait", f"--log={self._folder}/log", f"--options={options}", "start")

    def clear(self) -> None:
        """Forget all that agents have kept in it."""
        self.sql("DROP SCHEMA IF EXISTS apcore_a2a CASCADE")

    def sql(self, *statements: str) -> None:
        """Run statements, each by itself."""
        program = find("psql")
        assert program is not None
        command = [program, "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--dbname", self.url]
        command += [f"--command={statement}" for statement in statements]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def ask_for_passwords(self, user: str) -> None:
        """Let a user in with its password alone."""
        rules = self._data / "pg_hba.conf"
        known = rules.read_text()
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{known}")
        self._run("pg_ctl", "reload")

    def stop(self, mode: str = "fast") -> None:
        """Stop it; at once and without a word in the mode "immediate"."""
        self._run("pg_ctl", "--wait", f"--mode={mode}", "stop")

    def _run(self, name: str, *arguments: str) -> None:
        program = find(name)
        assert program is not None
        command = [*_as_somebody(), program, f"--pgdata={self._data}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def database(place: str | None = None) -> Iterator[Database]:
    """A server that runs, and leaves nothing behind; its files are in a folder of *place*."""
    with TemporaryDirectory(prefix="apcore-a2a-", dir=place) as folder:
        found = Database(Path(folder))
        found.create()
        found.start()
        try:
            yield found
        finally:
            found.stop("immediate")


def _as_somebody() -> Sequence[str]:
    """PostgreSQL refuses to be run by root."""
    if os.getuid() != 0:
        return ()
    return ("runuser", "-u", "postgres", "--")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
