"""Every store does what a store must do."""

from pathlib import Path

import pytest
from apcore_a2a_store import InMemoryTaskStore
from apcore_a2a_store.sqlite import SqliteStore
from apcore_a2a_store.testing import CHECKS, Check

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_store_in_memory(check: Check) -> None:
    await check(InMemoryTaskStore())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_store_in_a_file(check: Check, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "agent.db")
    await store.start()
    await check(store)
    await store.close()
