"""What a container is asked for, whatever the way a GPU takes into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import ProcessLabels, ResourceLimits, RoleSpec
from kernel_matrix.sandboxes.docker_request import DaemonInfo, create_request, dropped_limits, isolation_of


def asked(role: Role, info: Mapping[str, object], *cores: int, gives_way: bool = False) -> Any:
    """The host settings of the request for a role."""
    labels = ProcessLabels(run_id="r", cell_id="c", session=0, gpu_uuid="", owner="1:2:3")
    module = "kernel_matrix.inside.build.builder"
    spec = RoleSpec(role=role, labels=labels, image="sha256:1", module=module, gives_way=gives_way)
    return create_request(spec, DaemonInfo(info), unlimited_memlock=False, cores=cores)["HostConfig"]


def test_what_gives_way_has_the_lowest_weight_and_leaves_cores() -> None:
    found = asked(Role.BUILDER, {}, 3, 12, gives_way=True)
    assert (found["CpuShares"], found["CpusetCpus"]) == (2, "3,12")
    assert not asked(Role.BUILDER, {}, 3, 12).keys() & {"CpuShares", "CpusetCpus"}
    assert "CpusetCpus" not in asked(Role.BUILDER, {}, gives_way=True), "all cores are its own"


@pytest.mark.parametrize("info", [{"CPUSet": False}, {"BuildahVersion": "1.28.2", "Rootless": True}])
def test_no_cores_are_asked_of_a_daemon_without_a_choice(info: Mapping[str, object]) -> None:
    assert "CpusetCpus" not in asked(Role.BUILDER, info, 3, gives_way=True)


@pytest.mark.parametrize("info", [{}, {"BuildahVersion": "1.28.2"}])
def test_podman_alone_gets_a_limit_of_processes_per_user(info: Mapping[str, object]) -> None:
    limits = {one["Name"]: one["Hard"] for one in asked(Role.CANDIDATE, info)["Ulimits"]}
    assert limits.get("nproc", 0) == (64 * ResourceLimits().pids if info else 0)


ROOTLESS = {"BuildahVersion": "1.28.2", "Rootless": True, "OSType": "linux", "MemoryLimit": True, "PidsLimit": True}


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({**ROOTLESS, "CgroupVersion": "1"}, "rootless Podman can neither limit nor pause"),
        ({**ROOTLESS, "CgroupVersion": "2"}, ""),
        ({**ROOTLESS, "CgroupVersion": "1", "Rootless": False}, ""),
        ({"OSType": "windows"}, "switch it to Linux containers"),
        ({"OSType": "linux", "CgroupVersion": "1"}, ""),
    ],
)
def test_a_daemon_that_drops_all_limits_is_unusable(info: Mapping[str, object], words: str) -> None:
    reason = DaemonInfo(info).why_unusable
    assert words in reason
    assert bool(reason) is bool(words)


def settings(request: Mapping[str, Any], **changes: object) -> dict[str, Any]:
    """The settings of a container as Podman reports them, which made it from a request."""
    limits = [{**limit, "Name": f"RLIMIT_{limit['Name'].upper()}"} for limit in request["HostConfig"]["Ulimits"]]
    return {"HostConfig": {**request["HostConfig"], "Ulimits": limits, **changes}}


@pytest.mark.parametrize(
    ("changes", "abilities", "dropped"),
    [
        ({}, {}, ()),
        ({"Memory": 0, "PidsLimit": 0}, {}, ("memory_bytes", "pids")),
        ({"Memory": 0, "PidsLimit": 0}, {"MemoryLimit": False, "PidsLimit": False}, ()),
        ({"Ulimits": []}, {}, ("nproc", "core", "nofile", "fsize")),
        ({"Ulimits": None}, {}, ("nproc", "core", "nofile", "fsize")),
    ],
)
def test_limits_that_were_not_set_are_named(
    changes: Mapping[str, object], abilities: Mapping[str, object], dropped: tuple[str, ...]
) -> None:
    info = {**ROOTLESS, "Rootless": False, **abilities}
    request = {"HostConfig": asked(Role.CANDIDATE, info)}
    assert dropped_limits(request, settings(request, **changes), DaemonInfo(info)) == dropped


def test_rootless_podman_is_asked_for_no_limits_that_it_drops() -> None:
    request = {"HostConfig": asked(Role.CANDIDATE, ROOTLESS)}
    assert request["HostConfig"]["Ulimits"] == []
    assert dropped_limits(request, settings(request, Ulimits=None), DaemonInfo(ROOTLESS)) == ()


def test_isolation_lists_only_limits_that_are_enforced() -> None:
    labels = ProcessLabels(run_id="r", cell_id="c", session=0, gpu_uuid="", owner="1:2:3")
    spec = RoleSpec(role=Role.CANDIDATE, labels=labels, image="sha256:1", module="kernel_matrix.inside.build.builder")
    found = isolation_of(spec, DaemonInfo({**ROOTLESS, "MemoryLimit": False, "PidsLimit": False}))
    assert found.memory_limit == ""
    assert not {"memory_bytes", "pids"} & set(found.limits)
    assert {"the daemon cannot limit memory", "the daemon cannot limit the number of processes"} <= set(found.notes)
