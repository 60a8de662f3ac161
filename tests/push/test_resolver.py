"""Name resolution: slow names delay neither the event loop nor other names."""

import asyncio
import gc
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.push import guard as guard_module
from apcore_a2a_server.push.guard import BusyError, Guard, RefusedError, Resolver

from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import PATIENCE

pytestmark = pytest.mark.anyio

QUICK, SLOW = "quick.example.com", "slow.example.com"
ADDRESSES = ["93.184.215.14", "2606:4700:4700::1111"]


class FakeSystem:
    """System resolver in which slow names wait until a test opens its gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.lookups = threading.Semaphore(0)
        self.error: type[Exception] | None = None

    def __call__(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        if "slow" in host:
            self.lookups.release()
            self.gate.wait(PATIENCE)
            if self.error:
                raise self.error("too late")
        order = [ADDRESSES[0], ADDRESSES[0], ADDRESSES[1]]
        return [(0, socket.SOCK_STREAM, 6, "", (address, port)) for address in order]

    async def wait_for_lookup(self) -> None:
        """Wait until a slow name is looked up."""
        assert await asyncio.to_thread(self.lookups.acquire, timeout=PATIENCE)


async def resolves(host: str, resolver: Resolver | None = None, principal: str = "ada") -> bool:
    """Return whether a name has addresses."""
    try:
        return bool(await (resolver or Resolver())(host, 443, principal))
    except (OSError, BusyError):
        return False


def resolver_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "resolver"]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSystem]:
    fake_system = FakeSystem()
    monkeypatch.setattr(socket, "getaddrinfo", fake_system)
    yield fake_system
    fake_system.gate.set()
    for thread in resolver_threads():
        thread.join(PATIENCE)
    assert not resolver_threads()


async def test_a_slow_name_delays_neither_the_event_loop_nor_other_names(
    system: FakeSystem,
) -> None:
    resolver = Resolver()
    slow = [asyncio.create_task(resolver(SLOW, 443, "ada")) for _ in range(7)]
    for _ in slow:
        await system.wait_for_lookup()
    assert await resolver(QUICK, 443, "ada") == ADDRESSES
    assert not any(task.done() for task in slow)
    system.gate.set()
    assert await asyncio.gather(*slow) == [ADDRESSES] * 7


async def test_a_lookup_times_out(system: FakeSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "LOOKUP_TIMEOUT", 0.05)
    assert not await resolves(SLOW)
    with pytest.raises(RefusedError, match="public"):
        await Guard(PushSettings()).check(f"https://{SLOW}/", "ada")


async def test_the_number_of_lookup_threads_is_limited(
    system: FakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "LOOKUP_TIMEOUT", 0.1)
    monkeypatch.setattr(guard_module, "MAX_LOOKUPS", 3)
    resolver = Resolver()
    many = (resolver(f"{number}.{SLOW}", 443, "ada") for number in range(50))
    results = await asyncio.gather(*many, return_exceptions=True)
    assert all(isinstance(result, OSError | BusyError) for result in results)
    assert sum(isinstance(result, BusyError) for result in results) == 47
    assert len(resolver_threads()) == 3
    with pytest.raises(BusyError, match="try again later"):
        await resolver(QUICK, 443, "ada")
    monkeypatch.setattr(guard_module, "LOOKUP_TIMEOUT", PATIENCE)
    waiting = asyncio.create_task(resolver(QUICK, 443, "ada"))
    system.gate.set()
    assert await waiting == ADDRESSES
    assert (
        await asyncio.gather(*(resolver(QUICK, 443, "ada") for _ in range(10))) == [ADDRESSES] * 10
    )


async def test_slow_names_of_a_principal_do_not_delay_another_principal(
    system: FakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "LOOKUP_TIMEOUT", 0.5)
    resolver = Resolver()
    slow = [asyncio.create_task(resolves(f"{n}.{SLOW}", resolver, "eve")) for n in range(100)]
    for _ in range(guard_module.MAX_LOOKUPS_PER_PRINCIPAL):
        await system.wait_for_lookup()
    assert await resolver(QUICK, 443, "ada") == ADDRESSES
    # one more, since the thread of the quick name may still be ending
    assert len(resolver_threads()) <= guard_module.MAX_LOOKUPS_PER_PRINCIPAL + 1
    assert not any(await asyncio.gather(*slow))


async def test_a_lookup_can_be_cancelled(system: FakeSystem) -> None:
    unhandled_errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, error_context: unhandled_errors.append(error_context)
    )
    resolver, system.error = Resolver(), OSError
    task = asyncio.create_task(resolver(SLOW, 443, "ada"))
    await system.wait_for_lookup()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    system.gate.set()
    for thread in resolver_threads():
        await asyncio.to_thread(thread.join, PATIENCE)
    assert await resolver(QUICK, 443, "ada") == ADDRESSES
    del task
    gc.collect()
    assert not unhandled_errors


async def test_a_lookup_runs_in_a_daemon_thread(system: FakeSystem) -> None:
    task = asyncio.create_task(Resolver()(SLOW, 443, "ada"))
    await system.wait_for_lookup()
    (thread,) = resolver_threads()
    assert thread.daemon
    system.gate.set()
    assert await task == ADDRESSES


ENDING = """
import asyncio, socket, threading
from apcore_a2a_server.push import guard

guard.LOOKUP_TIMEOUT = 0.05
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
try:
    asyncio.run(guard.Resolver()("slow.example.com", 443, "ada"))
except OSError:
    print("not found")
"""


def test_a_process_can_end_during_a_lookup() -> None:
    command = [sys.executable, "-W", "error", "-c", ENDING]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "not found\n", "")


@pytest.mark.parametrize("error", [None, OSError, UnicodeError])
def test_a_lookup_that_outlasts_the_event_loop_raises_no_error(
    error: type[Exception] | None, system: FakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "LOOKUP_TIMEOUT", 0.05)
    unhandled_errors: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", unhandled_errors.append)
    monkeypatch.setattr(sys, "unraisablehook", unhandled_errors.append)
    system.error = error
    assert not asyncio.run(resolves(SLOW))
    (thread,) = resolver_threads()
    system.gate.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    del thread
    gc.collect()
    assert not unhandled_errors


async def test_an_invalid_name_is_not_found() -> None:
    label = "a" * 63
    for host in (f"{'a' * 64}.example.com", ".".join([label] * 5), "xn--99999999.invalid"):
        assert not await resolves(host)


async def test_literal_addresses_resolve_to_themselves() -> None:
    assert await Resolver()("127.0.0.1", 443, "ada") == ["127.0.0.1"]
    assert await Resolver()("2606:4700:4700::1111", 443, "ada") == ["2606:4700:4700::1111"]
