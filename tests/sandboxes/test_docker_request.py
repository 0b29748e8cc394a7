"""What a container is asked for, whatever the way a GPU takes into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import ProcessLabels, ResourceLimits, RoleSpec
from kernel_matrix.sandboxes.docker_request import DaemonInfo, create_request


def asked(role: Role, info: Mapping[str, object]) -> Any:
    """The host settings of the request for a role."""
    labels = ProcessLabels(run_id="r", cell_id="c", session=0, gpu_uuid="", owner="1:2:3")
    spec = RoleSpec(role=role, labels=labels, image="sha256:1", module="kernel_matrix.inside.build.builder")
    return create_request(spec, DaemonInfo(info), unlimited_memlock=False)["HostConfig"]


@pytest.mark.parametrize("role", Role)
def test_only_a_compiler_gives_way_and_to_everybody(role: Role) -> None:
    assert asked(role, {}).get("CpuShares") == (2 if role is Role.BUILDER else None)


@pytest.mark.parametrize("info", [{}, {"BuildahVersion": "1.28.2"}])
def test_podman_alone_gets_a_limit_of_processes_per_user(info: Mapping[str, object]) -> None:
    limits = {one["Name"]: one["Hard"] for one in asked(Role.CANDIDATE, info)["Ulimits"]}
    assert limits.get("nproc", 0) == (64 * ResourceLimits().pids if info else 0)
