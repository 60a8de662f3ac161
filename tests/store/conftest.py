"""One PostgreSQL server for all tests that need one."""

from collections.abc import Iterator

import pytest

from .postgresql import Database, database, find


def pytest_itemcollected(item: pytest.Function) -> None:
    """Mark the tests that need the database."""
    if "server" in item.fixturenames:
        item.add_marker("database")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def server() -> Iterator[Database]:
    if find("initdb") is None:
        pytest.skip("No PostgreSQL here; Debian and Ubuntu: apt install postgresql")
    with database() as server:
        yield server
