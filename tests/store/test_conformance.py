"""Every store does what a store must do."""

import pytest
from apcore_a2a_store import InMemoryTaskStore
from apcore_a2a_store.testing import CHECKS, Check

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_store_in_memory(check: Check) -> None:
    await check(InMemoryTaskStore())
