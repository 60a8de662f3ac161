"""Import every built wheel on its own: `uv run tools/check_wheels.py DIRECTORY`.

Each wheel is installed with only its declared dependencies: first without extras, then with each
extra in `IMPORTS`, to import that extra's module. With the extra `all`, every public name must be
importable. Other extras, such as those of frameworks, are not installed: their requirements are
only resolved.
"""

import os
import subprocess
import sys
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

IMPORTS = {
    "auth": "apcore_a2a_auth",
    "bridges": "apcore_a2a_bridges",
    "explorer": "apcore_a2a_explorer",
    "grpc": "apcore_a2a_server.bindings.grpc",
    "openapi": "apcore_a2a_server.modules.openapi",
    "postgres": "apcore_a2a_server.store.postgres",
    "remote": "apcore_a2a_remote",
    "server": "apcore_a2a_server.app.serve",
    "sqlite": "apcore_a2a_server.store.sqlite",
}
"""For each extra to install, in any distribution: a module that needs the extra."""
UV = os.environ.get("UV", "uv")  # `uv run` sets it to its own path


def extras_of(wheel: Path) -> list[str]:
    """Return the extras that *wheel* provides."""
    distribution, version = wheel.name.split("-")[:2]
    with ZipFile(wheel) as archive:
        metadata = archive.read(f"{distribution}-{version}.dist-info/METADATA").decode()
    return HeaderParser().parsestr(metadata).get_all("Provides-Extra", [])


def runs(wheel: Path, extras: str, statement: str) -> bool:
    """Return whether *statement* runs with *wheel* and *extras*, such as "[auth]", installed."""
    distribution = wheel.name.partition("-")[0]
    command = [UV, "run", "--quiet", "--isolated", "--no-project", "--python", sys.executable]
    command += ["--find-links", str(wheel.parent)]
    command += ["--with", f"{distribution}{extras} @ {wheel.as_uri()}"]
    command += ["python", "-I", "-c", statement]
    return subprocess.run(command, check=False).returncode == 0


def resolves(wheel: Path, extras: str) -> bool:
    """Return whether the requirements of *wheel* with *extras* can be resolved."""
    distribution = wheel.name.partition("-")[0]
    command = [UV, "pip", "compile", "--quiet", "--python", sys.executable]
    command += ["--find-links", str(wheel.parent), "-"]
    requirement = f"{distribution}{extras} @ {wheel.as_uri()}"
    run = subprocess.run(
        command, input=requirement, check=False, stdout=subprocess.DEVNULL, text=True
    )
    return run.returncode == 0


def check(wheel: Path) -> int:
    """Check *wheel* alone and with each extra; return the number of failures."""
    module = wheel.name.partition("-")[0]
    cases = {"": f"import {module}"}
    for extra in extras_of(wheel):
        statement = f"from {module} import *" if extra == "all" else ""
        cases[f"[{extra}]"] = f"import {IMPORTS[extra]}" if extra in IMPORTS else statement
    failures = 0
    for extras, statement in cases.items():
        ok = runs(wheel, extras, statement) if statement else resolves(wheel, extras)
        failures += not ok
        checked = statement or "resolve the requirements"
        print("ok  " if ok else "FAIL", f"{module}{extras}: {checked}", flush=True)
    return failures


def main(directory: Path) -> int:
    """Check all wheels in *directory*; return the number of failures."""
    wheels = sorted(directory.resolve().glob("*.whl"))
    if not wheels:
        sys.exit(f"no wheels in {directory}")
    return sum(check(wheel) for wheel in wheels)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
