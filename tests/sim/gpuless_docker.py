"""The Docker engine on a machine whose only GPUs are simulated (:mod:`tests.sim.gpuless`)."""

from __future__ import annotations

from kernel_matrix.sandboxes.docker import DockerSandbox
from tests.sim.gpuless import ShowsNoGpu


class GpulessDocker(ShowsNoGpu, DockerSandbox):
    """Docker, with roles that are shown no GPU."""


def open_sandbox() -> GpulessDocker:
    """As the registry of sandboxes asks for it."""
    return GpulessDocker()
