"""Clients of a service over HTTP, with and without ``async``; they need httpx, the extra ``client``."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kernel_matrix.client.exchanges import (
    Evaluation,
    Evaluations,
    Exchanges,
    HttpAnswer,
    HttpCall,
    Pause,
    Steps,
    Unreachable,
)
from kernel_matrix.errors import InfrastructureError, UsageError
from kernel_matrix.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Self

_T = TypeVar("_T")

TOKEN_VARIABLE: Final = "KERNEL_MATRIX_TOKEN"  # noqa: S105  # the name of a variable
DEFAULT_ADDRESS: Final = "http://127.0.0.1:8000"
DEFAULT_RETRY_FOR_S: Final = 300.0
"""A service that is updated or restarted is back by then."""
_ANSWER_S: Final = 120.0
"""A service takes seconds to accept a batch of 1,000 candidates."""


class Client:
    """A client of a service. Threads may share it.

    Args:
        address: The service's.
        token: The client's token; None: the variable ``KERNEL_MATRIX_TOKEN``, if it is set.
        retry_for_s: How long a call is repeated while the service cannot be reached or refuses it for now.

    Raises:
        UsageError: Address or token cannot be used.
        InfrastructureError: httpx is not installed.

    All methods raise :class:`~kernel_matrix.errors.ServiceRefusedError` for what the service refuses, and
    :class:`~kernel_matrix.errors.ServiceError` if it fails or cannot be reached for ``retry_for_s``.
    """

    def __init__(
        self, address: str = DEFAULT_ADDRESS, *, token: str | None = None, retry_for_s: float = DEFAULT_RETRY_FOR_S
    ) -> None:
        self._httpx = _import_httpx()
        self._http = self._httpx.Client(**_settings(self._httpx, address, token))
        self._exchanges = Exchanges(address=address, retry_for_s=retry_for_s)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._exchanges.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def evaluate(self, *, wait_s: float | None = None, **request: Any) -> Evaluation:
        """Submit a candidate and wait for its end.

        Args:
            wait_s: How long to wait, seconds; None: until the end.
            request: Fields of the request: ``problem``, ``source``, and perhaps further ones.
        """
        return self.wait([self.submit(**request).id], wait_s)[0]

    def submit(self, **request: Any) -> Evaluation:
        """Submit a candidate; its evaluation has ended already if the same was judged before.

        Args:
            request: Fields of the request: ``problem``, ``source``, and perhaps further ones.
        """
        return self.submit_many([request])[0]

    def submit_many(self, requests: Iterable[Mapping[str, Any]]) -> Evaluations:
        """Submit candidates in batches of at most 1,000; a batch is accepted whole or not at all.

        Args:
            requests: The fields of each request. One without a ``key`` gets one, so that it can be sent again.
        """
        return self._run(self._exchanges.submit(requests))

    def wait(self, ids: Iterable[str], timeout_s: float | None = None) -> Evaluations:
        """Wait until evaluations have ended.

        Args:
            ids: The evaluations' ids.
            timeout_s: How long to wait, seconds; None: until the end. A service that cannot be reached is waited for as
                long as ``retry_for_s`` says, though.

        Returns:
            The evaluations, in the order of ``ids``. After ``timeout_s`` some may not have ended; they are judged all
            the same, and can be waited for again.
        """
        return self._run(self._exchanges.wait(ids, timeout_s))

    def get(self, id_: str) -> Evaluation:
        """Return an evaluation."""
        return self._run(self._exchanges.get(id_))

    def list(self, *, after: int = 0) -> Iterator[Evaluation]:
        """Iterate over the client's evaluations whose numbers are greater than ``after``, oldest first."""
        while page := self._run(self._exchanges.page(after)):
            yield from page
            after = page[-1].number

    def cancel(self, id_: str) -> Evaluation:
        """Cancel an evaluation that has not begun; one that has is judged to its end."""
        return self._run(self._exchanges.cancel(id_))

    def problems(self) -> Any:
        """Return what the service says of its problems, a list of dictionaries."""
        return self._run(self._exchanges.read("/problems"))

    def workers(self) -> Any:
        """Return what the service says of its devices, a list of dictionaries."""
        return self._run(self._exchanges.read("/workers"))

    def health(self) -> Any:
        """Return the service's ``status`` and ``version``."""
        return self._run(self._exchanges.read("/health"))

    def _run(self, steps: Steps[_T]) -> _T:
        reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                found: _T = end.value
                return found
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                reply = self._send(step)

    def _send(self, call: HttpCall) -> HttpAnswer | Unreachable:
        try:
            return _answer(self._http.request(**_arguments(call)))
        except self._httpx.RequestError as error:
            return _unreachable(error)


class AsyncClient:
    """A client of a service for ``async`` code, with asyncio or trio; the methods of :class:`Client`.

    Args:
        address: As for :class:`Client`.
        token: As for :class:`Client`.
        retry_for_s: As for :class:`Client`.

    Raises:
        UsageError: Address or token cannot be used.
        InfrastructureError: httpx is not installed.
    """

    def __init__(
        self, address: str = DEFAULT_ADDRESS, *, token: str | None = None, retry_for_s: float = DEFAULT_RETRY_FOR_S
    ) -> None:
        self._httpx = _import_httpx()
        self._http = self._httpx.AsyncClient(**_settings(self._httpx, address, token))
        self._exchanges = Exchanges(address=address, retry_for_s=retry_for_s)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._exchanges.address!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def evaluate(self, *, wait_s: float | None = None, **request: Any) -> Evaluation:
        """Submit a candidate and wait for its end, as :meth:`Client.evaluate`."""
        submitted = await self.submit(**request)
        return (await self.wait([submitted.id], wait_s))[0]

    async def submit(self, **request: Any) -> Evaluation:
        """Submit a candidate, as :meth:`Client.submit`."""
        return (await self.submit_many([request]))[0]

    async def submit_many(self, requests: Iterable[Mapping[str, Any]]) -> Evaluations:
        """Submit candidates in batches, as :meth:`Client.submit_many`."""
        return await self._run(self._exchanges.submit(requests))

    async def wait(self, ids: Iterable[str], timeout_s: float | None = None) -> Evaluations:
        """Wait until evaluations have ended, as :meth:`Client.wait`."""
        return await self._run(self._exchanges.wait(ids, timeout_s))

    async def get(self, id_: str) -> Evaluation:
        """Return an evaluation."""
        return await self._run(self._exchanges.get(id_))

    async def list(self, *, after: int = 0) -> AsyncIterator[Evaluation]:
        """Iterate over the client's evaluations, as :meth:`Client.list`."""
        while page := await self._run(self._exchanges.page(after)):
            for one in page:
                yield one
            after = page[-1].number

    async def cancel(self, id_: str) -> Evaluation:
        """Cancel an evaluation that has not begun, as :meth:`Client.cancel`."""
        return await self._run(self._exchanges.cancel(id_))

    async def problems(self) -> Any:
        """Return what the service says of its problems, a list of dictionaries."""
        return await self._run(self._exchanges.read("/problems"))

    async def workers(self) -> Any:
        """Return what the service says of its devices, a list of dictionaries."""
        return await self._run(self._exchanges.read("/workers"))

    async def health(self) -> Any:
        """Return the service's ``status`` and ``version``."""
        return await self._run(self._exchanges.read("/health"))

    async def _run(self, steps: Steps[_T]) -> _T:
        import anyio  # noqa: PLC0415  # comes with httpx, which is an extra

        reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                found: _T = end.value
                return found
            if isinstance(step, Pause):
                await anyio.sleep(step.seconds)
            else:
                reply = await self._send(step)

    async def _send(self, call: HttpCall) -> HttpAnswer | Unreachable:
        try:
            return _answer(await self._http.request(**_arguments(call)))
        except self._httpx.RequestError as error:
            return _unreachable(error)


def _import_httpx() -> ModuleType:
    try:
        import httpx  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        what = f"{error.name} is not installed"
        raise InfrastructureError(what, next_step="pip install 'kernel-matrix[client]'") from None
    return httpx


def _settings(httpx: ModuleType, address: str, token: str | None) -> dict[str, Any]:
    """Return the arguments of httpx's clients.

    Raises:
        UsageError: Address or token cannot be used.
    """
    headers = {"User-Agent": f"kernel-matrix/{__version__}", "Content-Type": "application/json"}
    token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
    if token.strip():
        if not re.fullmatch(r"[!-~]+", token.strip()):  # httpx would show it in its error
            raise UsageError("the token has characters that no header may have", next_step="check the token")
        headers["Authorization"] = f"Bearer {token.strip()}"
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL as error:
        raise UsageError(f"the service's address cannot be used: {error}", next_step=_ADDRESS_FORM) from None
    if url.userinfo:
        raise UsageError("the service's address has a user or a password", next_step="give the token as token=…")
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"the service's address cannot be used: {address!r}", next_step=_ADDRESS_FORM)
    return {"base_url": url, "headers": headers, "timeout": httpx.Timeout(_ANSWER_S, connect=10.0)}


_ADDRESS_FORM: Final = "write it like http://127.0.0.1:8000"


def _arguments(call: HttpCall) -> dict[str, Any]:
    return {"method": call.method, "url": call.path, "params": list(call.params), "content": call.body}


def _answer(response: Any) -> HttpAnswer:
    return HttpAnswer(
        status=response.status_code, body=response.content, retry_after=response.headers.get("Retry-After")
    )


def _unreachable(error: Exception) -> Unreachable:
    return Unreachable(str(error) or type(error).__name__)
