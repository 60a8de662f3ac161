"""A PostgreSQL server for tests: on loopback, in a temporary folder, unprivileged."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDERS = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]


def find(name: str) -> str | None:
    """Return the path of a PostgreSQL program, from Debian's folders or from PATH."""
    return shutil.which(name, path=os.pathsep.join([*map(str, FOLDERS), os.environ["PATH"]]))


class Database:
    """A PostgreSQL server.

    Args:
        folder: The folder for its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self.port = _free_port()
        self.url = f"postgresql://agent@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The id of the server's main process, which has a child process for each connection."""
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def create(self) -> None:
        """Create the server's files."""
        self._folder.chmod(0o777)
        self._run("initdb", "--username=agent", "--auth=trust", "--encoding=UTF8")

    @property
    def owner(self) -> int:
        """The id of the user that owns the server's files."""
        return self._data.stat().st_uid

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder}"
        self._run("pg_ctl", "--wait", f"--log={self._folder}/log", f"--options={options}", "start")

    def clear(self) -> None:
        """Delete everything that agents have stored."""
        self.sql("DROP SCHEMA IF EXISTS apcore_a2a CASCADE")

    def sql(self, *statements: str) -> None:
        """Run statements, each in a separate transaction."""
        program = find("psql")
        assert program is not None
        command = [program, "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--dbname", self.url]
        command += [f"--command={statement}" for statement in statements]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr

    def ask_for_passwords(self, user: str) -> None:
        """Require a password from *user*."""
        path = self._data / "pg_hba.conf"
        rules = path.read_text()
        path.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules}")
        self._run("pg_ctl", "reload")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; the mode "immediate" aborts it like a crash."""
        self._run("pg_ctl", "--wait", f"--mode={mode}", "stop")

    def _run(self, name: str, *arguments: str) -> None:
        program = find(name)
        assert program is not None
        command = [*_as_unprivileged_user(), program, f"--pgdata={self._data}", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        assert result.returncode == 0, result.stdout + result.stderr


@contextmanager
def database(parent: str | None = None) -> Iterator[Database]:
    """Run a server in a temporary folder below *parent* and delete it afterwards."""
    with TemporaryDirectory(prefix="apcore-a2a-", dir=parent) as folder:
        server = Database(Path(folder))
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")


def _as_unprivileged_user() -> Sequence[str]:
    """Return a command prefix that drops root's privileges, if any: PostgreSQL refuses them."""
    if os.getuid() != 0:
        return ()
    return ("runuser", "-u", "postgres", "--")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
