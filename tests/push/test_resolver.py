"""Names that are slow to be found hold up nobody, and nothing."""

import asyncio
import gc
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from apcore_a2a_server.push import PushSettings, RefusedError
from apcore_a2a_server.push import guard as module
from apcore_a2a_server.push.guard import BusyError, Guard, Resolver

from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import PATIENCE

pytestmark = pytest.mark.anyio

QUICK, SLOW = "quick.example.com", "slow.example.com"
FOUND = ["93.184.215.14", "2606:4700:4700::1111"]


class System:
    """The system's resolver, in which names that are slow take until it is let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked = threading.Semaphore(0)
        self.fails: type[Exception] | None = None

    def __call__(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        if "slow" in host:
            self.asked.release()
            self.gate.wait(PATIENCE)
            if self.fails:
                raise self.fails("too late")
        order = [FOUND[0], FOUND[0], FOUND[1]]
        return [(0, socket.SOCK_STREAM, 6, "", (address, port)) for address in order]

    async def is_asked(self) -> None:
        """Wait until a slow name is looked up."""
        assert await asyncio.to_thread(self.asked.acquire, timeout=PATIENCE)


async def is_found(host: str, resolver: Resolver | None = None, principal: str = "ada") -> bool:
    """Whether a name has addresses."""
    try:
        return bool(await (resolver or Resolver())(host, 443, principal))
    except (OSError, BusyError):
        return False


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "resolver"]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    found = System()
    monkeypatch.setattr(socket, "getaddrinfo", found)
    yield found
    found.gate.set()
    for thread in threads():
        thread.join(PATIENCE)
    assert not threads()


async def test_a_slow_name_holds_up_neither_the_loop_nor_another_name(system: System) -> None:
    resolver = Resolver()
    slow = [asyncio.create_task(resolver(SLOW, 443, "ada")) for _ in range(7)]
    for _ in slow:
        await system.is_asked()
    assert await resolver(QUICK, 443, "ada") == FOUND
    assert not any(task.done() for task in slow)
    system.gate.set()
    assert await asyncio.gather(*slow) == [FOUND] * 7


async def test_a_name_that_takes_for_ever_is_not_found_in_its_time(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_TIMEOUT", 0.05)
    assert not await is_found(SLOW)
    with pytest.raises(RefusedError, match="public"):
        await Guard(PushSettings()).check(f"https://{SLOW}/", "ada")


async def test_names_without_end_take_no_more_threads_than_there_are_places(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_TIMEOUT", 0.1)
    monkeypatch.setattr(module, "LOOKUPS", 3)
    resolver = Resolver()
    many = (resolver(f"{number}.{SLOW}", 443, "ada") for number in range(50))
    results = await asyncio.gather(*many, return_exceptions=True)
    assert all(isinstance(result, OSError | BusyError) for result in results)
    assert sum(isinstance(result, BusyError) for result in results) == 47
    assert len(threads()) == 3
    with pytest.raises(BusyError, match="try again later"):
        await resolver(QUICK, 443, "ada")
    monkeypatch.setattr(module, "LOOKUP_TIMEOUT", PATIENCE)
    waiting = asyncio.create_task(resolver(QUICK, 443, "ada"))
    system.gate.set()
    assert await waiting == FOUND
    assert await asyncio.gather(*(resolver(QUICK, 443, "ada") for _ in range(10))) == [FOUND] * 10


async def test_the_slow_names_of_a_principal_hold_up_its_own_alone(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_TIMEOUT", 0.5)
    resolver = Resolver()
    slow = [asyncio.create_task(is_found(f"{n}.{SLOW}", resolver, "eve")) for n in range(100)]
    for _ in range(module.PER_PRINCIPAL):
        await system.is_asked()
    assert await resolver(QUICK, 443, "ada") == FOUND
    assert len(threads()) <= module.PER_PRINCIPAL + 1  # that of the quick name is about to end
    assert not any(await asyncio.gather(*slow))


async def test_who_waits_for_a_name_may_go(system: System) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
    resolver, system.fails = Resolver(), OSError
    task = asyncio.create_task(resolver(SLOW, 443, "ada"))
    await system.is_asked()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    system.gate.set()
    for thread in threads():
        await asyncio.to_thread(thread.join, PATIENCE)
    assert await resolver(QUICK, 443, "ada") == FOUND
    del task
    gc.collect()
    assert not complaints


async def test_a_look_up_is_in_a_thread_that_no_process_waits_for(system: System) -> None:
    task = asyncio.create_task(Resolver()(SLOW, 443, "ada"))
    await system.is_asked()
    (thread,) = threads()
    assert thread.daemon
    system.gate.set()
    assert await task == FOUND


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


def test_a_process_ends_while_a_name_is_looked_up() -> None:
    command = [sys.executable, "-W", "error", "-c", ENDING]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "not found\n", "")


@pytest.mark.parametrize("fails", [None, OSError, UnicodeError])
def test_what_is_found_when_the_loop_has_ended_breaks_nothing(
    fails: type[Exception] | None, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_TIMEOUT", 0.05)
    broken: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", broken.append)
    monkeypatch.setattr(sys, "unraisablehook", broken.append)
    system.fails = fails
    assert not asyncio.run(is_found(SLOW))
    (thread,) = threads()
    system.gate.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    del thread
    gc.collect()
    assert not broken


async def test_a_name_that_none_can_have_is_not_found() -> None:
    label = "a" * 63
    for host in (f"{'a' * 64}.example.com", ".".join([label] * 5), "xn--99999999.invalid"):
        assert not await is_found(host)


async def test_addresses_are_resolved_to_themselves() -> None:
    assert await Resolver()("127.0.0.1", 443, "ada") == ["127.0.0.1"]
    assert await Resolver()("2606:4700:4700::1111", 443, "ada") == ["2606:4700:4700::1111"]
