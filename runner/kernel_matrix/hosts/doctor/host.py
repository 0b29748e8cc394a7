"""The examined host, with the values that several checks need, each read once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kernel_matrix.container_daemon import connect, why_no_answer
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.hosts.survey import AUTO
from kernel_matrix.matrix import Matrix, Policy
from kernel_matrix.platforms import Gpu, PlatformInventory, named
from kernel_matrix.platforms.check_result import CheckResult, fail
from kernel_matrix.platforms.registry import get_platform, platforms
from kernel_matrix.sandboxes.docker_request import DaemonInfo

SUBPROCESS_TIMEOUT_S = 10
"""Time limit for a daemon's answer, and for a program that prints its version; both usually take less than 1 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonAnswer:
    """Properties of the Docker daemon, or the reason why it does not answer."""

    daemon: DaemonInfo | None
    reason: str = ""
    """Reason why :attr:`daemon` is ``None``."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """The examined host, and the matrix that it is examined for. No property raises for a thing that is absent."""

    sandbox: str = AUTO
    """``auto``, or the name of the sandbox that is to run cells."""
    matrix: Matrix | None = None
    matrix_reason: str = "no matrix was named"
    """Reason why :attr:`matrix` is ``None``."""
    lock_path: Path | None = None
    """Image lock; ``None`` for the one beside the matrix."""
    results: Path = Path("results")
    trial: bool = False
    """Also run a reference in the sandbox, which takes seconds."""
    plugin_faults: tuple[str, ...] = ()
    """One line for each extension of an installed package that cannot be used."""

    @cached_property
    def docker(self) -> DaemonAnswer:
        """Answer of the daemon at ``DOCKER_HOST`` or at a usual socket, Docker's or Podman's."""
        return ask_daemon()

    @cached_property
    def inventories(self) -> Mapping[str, PlatformInventory]:
        """Platform → its inventory of this host, for the platforms of accelerators."""
        return {name: platform.inventory() for name, platform in platforms().items() if platform.IS_ACCELERATOR}

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Accelerators that answer."""
        return tuple(gpu for inventory in self.inventories.values() for gpu in inventory.gpus)

    def has_device_for(self, platform: str) -> bool:
        """Return whether a device of ``platform`` is here; the CPU always is."""
        return platform not in self.inventories or bool(self.inventories[platform].gpus)

    @property
    def uses_docker(self) -> bool:
        """True if cells may run in containers."""
        return self.sandbox in (AUTO, "docker")

    @property
    def daemon(self) -> DaemonInfo | None:
        """Daemon that would run cells; ``None`` if no daemon answers or cells do not run in containers."""
        return self.docker.daemon if self.uses_docker else None

    @cached_property
    def ways(self) -> dict[Gpu, str]:
        """GPU → name of the way in which :attr:`daemon` can give it to a container; empty without a daemon."""
        daemon = self.daemon
        if daemon is None:
            return {}
        return {gpu: get_platform(gpu.platform).container_access(daemon.info, gpu).way for gpu in self.gpus}

    @cached_property
    def policies(self) -> tuple[Policy, ...]:
        """Policies that cells of the matrix may have: the matrix's own one, and that with each override alone."""
        if self.matrix is None:
            return (Policy(),)
        from kernel_matrix.matrix.tiers import with_policy  # noqa: PLC0415  # only where there is a matrix

        own = self.matrix.policy
        return (own, *(with_policy(own, override.policy) for override in self.matrix.overrides if override.policy))


def ask_daemon() -> DaemonAnswer:
    """Read the properties of the Docker daemon; an absent daemon is an answer, not an error."""
    from docker.errors import DockerException  # noqa: PLC0415  # the SDK takes 0.2 s to import
    from requests.exceptions import RequestException  # noqa: PLC0415  # same

    try:
        client = connect(timeout_s=SUBPROCESS_TIMEOUT_S)
    except DockerException as error:
        return DaemonAnswer(daemon=None, reason=why_no_answer(error))
    try:
        return DaemonAnswer(daemon=DaemonInfo(client.info(), client.api.api_version))
    except (DockerException, RequestException) as error:
        return DaemonAnswer(daemon=None, reason=why_no_answer(error))
    finally:
        client.close()


GpuCheck = Callable[[Gpu, Host], CheckResult]
"""Check of one GPU; it raises :class:`InfrastructureError` if the GPU does not answer."""


def per_gpu(subject: str) -> Callable[[GpuCheck], Callable[[Host], Iterator[CheckResult]]]:
    """Make a decorator that turns a check of one GPU into a check of the host, with one line for equal results.

    Args:
        subject: subject of the line about a GPU that does not answer.
    """

    def decorated(check: GpuCheck) -> Callable[[Host], Iterator[CheckResult]]:
        @functools.wraps(check)
        def of_host(host: Host) -> Iterator[CheckResult]:
            found: dict[CheckResult, list[Gpu]] = {}
            with _open_drivers(host.gpus):
                for gpu in host.gpus:
                    found.setdefault(_check_gpu(subject, check, gpu, host), []).append(gpu)
            for finding, gpus in found.items():
                yield replace(finding, found=f"{named(gpus)}: {finding.found}")

        return of_host

    return decorated


def advice_about(gpu: Gpu, mode: str) -> str:
    """Return how to change a mode of ``gpu``."""
    return get_platform(gpu.platform).ADVICE.get(mode, "see the documentation of its driver")


@contextmanager
def _open_drivers(gpus: Iterable[Gpu]) -> Iterator[None]:
    """Keep the driver libraries of ``gpus`` open, because opening one can take seconds.

    A library that cannot be opened is skipped here: each check opens it again, and reports the error.
    """
    with ExitStack() as opened:
        for name in {gpu.platform for gpu in gpus}:
            with suppress(InfrastructureError):
                opened.enter_context(get_platform(name).opened())
        yield


def _check_gpu(subject: str, check: GpuCheck, gpu: Gpu, host: Host) -> CheckResult:
    try:
        return check(gpu, host)
    except InfrastructureError as error:
        return fail(subject, error.what, error.next_step)
