"""Processes, forked from one that has torch, on a machine whose only GPUs are simulated (:mod:`tests.sim.gpuless`)."""

from __future__ import annotations

from kernel_matrix.sandboxes import process
from tests.sim.gpuless import ShowsNoGpu
from tests.sim.preloaded import Fork


class GpulessProcesses(ShowsNoGpu, process.ProcessSandbox):
    """The process sandbox, with roles that are shown no GPU."""


def open_sandbox() -> GpulessProcesses:
    """As the registry of sandboxes asks for it."""
    process.SupervisedProcess = Fork  # in this process only, which exists for nothing else
    return GpulessProcesses()
