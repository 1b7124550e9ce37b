"""A client for programs without an event loop: a client whose event loop runs on a thread."""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ._client import Client
from ._message import Message

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate["BlockingClient", P], T]:
    def call(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._client, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


class BlockingClient:
    """The calls of a Client, each of which blocks until it is done. `with` connects and closes it, `for` receives its messages.

    Several threads may call it. Iteration is for one of them, unless messages are acknowledged by themselves (`acknowledge="manual"`).
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("the client was opened before")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=self._client.client_id, daemon=True)
        self._thread.start()
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._run(self._client.close())
        finally:
            self._stop()

    close = _blocking(Client.close)
    publish = _blocking(Client.publish)
    subscribe = _blocking(Client.subscribe)
    unsubscribe = _blocking(Client.unsubscribe)
    wait_for_sessions = _blocking(Client.wait_for_sessions)

    def __iter__(self) -> Iterator[Message]:
        """The messages of all subscriptions, until the client is closed; TakenOver if another client uses its identifier."""
        while (message := self.receive()) is not None:
            yield message

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None if there will be no more. TimeoutError if none comes in `timeout` seconds."""
        return self._run(self._receive(timeout))

    async def _receive(self, timeout: float | None) -> Message | None:  # noqa: ASYNC109 - of the caller, who is on another thread
        async with asyncio.timeout(timeout):
            return await anext(aiter(self._client), None)

    @property
    def client_id(self) -> str:
        """The client identifier, of the first session."""
        return self._client.client_id

    @property
    def sessions(self) -> dict[int, str]:
        """The sessions that are connected, by number from 1: the address of each."""
        return self._run(self._look(lambda: self._client.sessions))

    @property
    def is_placed(self) -> bool:
        """Whether a control plane has answered."""
        return self._client.is_placed

    @property
    def last_problem(self) -> str:
        """The latest problem with a connection or the control plane, even if it is over."""
        return self._client.last_problem

    async def _look(self, read: Callable[[], T]) -> T:
        return read()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or self._loop.is_closed():
            work.close()
            raise RuntimeError("the client is not open: use it in `with`")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Also KeyboardInterrupt: nobody waits for the result.
            future.cancel()
            raise

    def _stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
