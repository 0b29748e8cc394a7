"""What a container is asked for, whatever the way a GPU takes into it."""

from __future__ import annotations

import pytest

from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import ProcessLabels, RoleSpec
from kernel_matrix.sandboxes.docker_request import DaemonInfo, create_request


@pytest.mark.parametrize("role", Role)
def test_only_a_compiler_gives_way_and_to_everybody(role: Role) -> None:
    labels = ProcessLabels(run_id="r", cell_id="c", session=0, gpu_uuid="", owner="1:2:3")
    spec = RoleSpec(role=role, labels=labels, image="sha256:1", module="kernel_matrix.inside.build.builder")
    asked = create_request(spec, DaemonInfo({}), unlimited_memlock=False)["HostConfig"].get("CpuShares")
    assert asked == (2 if role is Role.BUILDER else None)
