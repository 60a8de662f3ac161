"""One PostgreSQL for all tests that need one."""

from collections.abc import Iterator

import pytest

from .postgresql import Database, database, find


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def server() -> Iterator[Database]:
    if find("initdb") is None:
        pytest.skip("No PostgreSQL here; Debian and Ubuntu: apt install postgresql")
    with database() as found:
        yield found
