"""The host under examination: what was asked of it, and what several checks read, read once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kernel_matrix.errors import InfrastructureError
from kernel_matrix.hosts.survey import AUTO
from kernel_matrix.matrix import Matrix, Policy
from kernel_matrix.platforms import Gpu, PlatformInventory, named
from kernel_matrix.platforms.check_result import CheckResult, fail
from kernel_matrix.platforms.registry import get_platform, platforms
from kernel_matrix.sandboxes.docker_request import DaemonInfo

SUBPROCESS_TIMEOUT_S = 10
"""How long a program that is asked for its version, or a daemon, may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSeen:
    """A Docker daemon, or why there is none to talk to."""

    daemon: DaemonInfo | None
    trouble: str = ""
    """Why not, in words."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """The host that is examined, and the matrix it is examined for. Nothing in here raises for what is absent."""

    sandbox: str = AUTO
    """``auto``, or the sandbox that cells shall run on."""
    matrix: Matrix | None = None
    matrix_reason: str = "no matrix was named"
    """Why :attr:`matrix` is null, in words."""
    lock_path: Path | None = None
    """Images lock; null: the one beside the matrix."""
    results: Path = Path("results")
    plugin_faults: tuple[str, ...] = ()
    """One line for each extension of an installed package that cannot be used."""

    @cached_property
    def docker(self) -> DaemonSeen:
        """The daemon that ``DOCKER_HOST`` names, or of the default socket."""
        return ask_daemon()

    @cached_property
    def inventories(self) -> Mapping[str, PlatformInventory]:
        """What each platform of GPUs has here, by the platform's name."""
        return {name: platform.inventory() for name, platform in platforms().items() if platform.IS_ACCELERATOR}

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Devices that answer and are no CPU."""
        return tuple(gpu for inventory in self.inventories.values() for gpu in inventory.gpus)

    def has_device_for(self, platform: str) -> bool:
        """Return whether a device of ``platform`` is here; the CPU always is."""
        return platform not in self.inventories or bool(self.inventories[platform].gpus)

    @property
    def uses_docker(self) -> bool:
        """Whether containers are wanted at all."""
        return self.sandbox in (AUTO, "docker")

    @property
    def daemon(self) -> DaemonInfo | None:
        """The daemon that would run cells; null where none answers, or no containers are wanted."""
        return self.docker.daemon if self.uses_docker else None

    @cached_property
    def ways(self) -> dict[Gpu, str]:
        """How :attr:`daemon` can bring each GPU into a container; empty without one."""
        daemon = self.daemon
        if daemon is None:
            return {}
        return {gpu: get_platform(gpu.platform).container_access(daemon.info, gpu).way for gpu in self.gpus}

    @cached_property
    def policies(self) -> tuple[Policy, ...]:
        """Every policy that a cell of the matrix may have: its own, and with each override alone."""
        if self.matrix is None:
            return (Policy(),)
        from kernel_matrix.matrix.tiers import with_policy  # noqa: PLC0415  # only where there is a matrix

        own = self.matrix.policy
        return (own, *(with_policy(own, override.policy) for override in self.matrix.overrides if override.policy))


def ask_daemon() -> DaemonSeen:
    """Connect to the Docker daemon and ask what it is; never raises for an absent one."""
    import docker  # noqa: PLC0415  # the SDK takes 0.2 s to import
    from docker.errors import DockerException  # noqa: PLC0415  # same
    from requests.exceptions import RequestException  # noqa: PLC0415  # same

    try:
        client = docker.from_env(timeout=SUBPROCESS_TIMEOUT_S)
    except DockerException as error:
        return DaemonSeen(daemon=None, trouble=str(error))
    try:
        return DaemonSeen(daemon=DaemonInfo(client.info(), client.api.api_version))
    except (DockerException, RequestException) as error:
        return DaemonSeen(daemon=None, trouble=str(error))
    finally:
        client.close()


GpuCheck = Callable[[Gpu, Host], CheckResult]
"""What is found about one GPU; raises :class:`InfrastructureError` where it does not answer."""


def per_gpu(subject: str) -> Callable[[GpuCheck], Callable[[Host], Iterator[CheckResult]]]:
    """Turn a check of one GPU into a check of the host, in which equal findings become one line.

    :param subject: of the line about a GPU that does not answer.
    """

    def decorated(check: GpuCheck) -> Callable[[Host], Iterator[CheckResult]]:
        @functools.wraps(check)
        def of_host(host: Host) -> Iterator[CheckResult]:
            found: dict[CheckResult, list[Gpu]] = {}
            with _kept_open(host.gpus):
                for gpu in host.gpus:
                    found.setdefault(_asked(subject, check, gpu, host), []).append(gpu)
            for finding, gpus in found.items():
                yield replace(finding, found=f"{named(gpus)}: {finding.found}")

        return of_host

    return decorated


def advice_about(gpu: Gpu, mode: str) -> str:
    """Return how to change a mode of ``gpu``."""
    return get_platform(gpu.platform).ADVICE.get(mode, "see the documentation of its driver")


@contextmanager
def _kept_open(gpus: Iterable[Gpu]) -> Iterator[None]:
    """The libraries that ``gpus`` are asked through, open over many questions; one that does not open is left out.

    Each question opens it for itself as well, and so says itself why it cannot.
    """
    with ExitStack() as opened:
        for name in {gpu.platform for gpu in gpus}:
            with suppress(InfrastructureError):
                opened.enter_context(get_platform(name).opened())
        yield


def _asked(subject: str, check: GpuCheck, gpu: Gpu, host: Host) -> CheckResult:
    try:
        return check(gpu, host)
    except InfrastructureError as error:
        return fail(subject, error.what, error.next_step)
