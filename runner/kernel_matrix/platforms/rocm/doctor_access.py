"""Doctor's check of the access of containers to AMD GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.check_result import CheckResult, fail, warn
from kernel_matrix.platforms.container_ways import CDI, DEVICES
from kernel_matrix.platforms.driver_checks import examine_ways
from kernel_matrix.platforms.rocm.device_access import closed_nodes, device_nodes, groups_of

ADVICE = "load the driver (modprobe amdgpu); /dev/kfd and the GPU's /dev/dri/renderD… must be there"
_SUBJECT = "GPU device nodes"
_WORDS = {CDI: "by a CDI specification", DEVICES: "by their device nodes, with the libraries of the image"}


def examine_access(info: Mapping[str, Any], ways: Mapping[Gpu, str]) -> Iterator[CheckResult]:
    """Check that the daemon can give each GPU to a container, and that its users may then open the nodes."""
    yield from examine_ways(ways, _WORDS, ADVICE)
    nodes = tuple(dict.fromkeys(node for gpu in ways for node in device_nodes(gpu)))
    closed = closed_nodes(nodes)
    if closed:
        found = f"only root may use {', '.join(closed)}; candidates never run as root"
        yield fail(_SUBJECT, found, "give the nodes to the group render with mode 0660 by a rule of udev")
    if groups_of(nodes) and any("rootless" in str(option) for option in info.get("SecurityOptions") or ()):
        found = "the daemon is rootless, so the group of the nodes has another number in containers"
        yield warn(_SUBJECT, found, "use the daemon of root, or give the nodes mode 0666 by a rule of udev")
