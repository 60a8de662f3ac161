"""The verdict on a call: admitted or refused."""

import asyncio


class Verdict:
    """Whether a call is admitted, which requests can wait for.

    A request that is canceled while it awaits a future cancels the future, too. Each request that
    waits here has a future of its own, which costs less than `asyncio.shield`.

    Attributes:
        is_known: Whether the call was admitted or refused.
        refusal: The error for the client of a refused call; None for an admitted one.

    Example:
        ```python
        import asyncio

        from apcore_a2a_server.engine.verdict import Verdict


        async def main() -> None:
            verdict = Verdict()
            asyncio.get_running_loop().call_soon(verdict.give, None)
            print(await verdict.wait(), verdict.is_known)
            #> None True


        asyncio.run(main())
        ```
    """

    __slots__ = ("_waiters", "is_known", "refusal")

    def __init__(self) -> None:
        self.is_known = False
        self.refusal: Exception | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def give(self, refusal: Exception | None) -> None:
        """Admit the call, or refuse it with an error for the client; wake all that wait."""
        self.is_known, self.refusal = True, refusal
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> Exception | None:
        """Wait until the verdict is known; return the refusal, if it is one."""
        if not self.is_known:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        return self.refusal
