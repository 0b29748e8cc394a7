"""Which way an AMD GPU takes into a container or a process, and what is asked for on each."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernel_matrix.environments.unpacked_images import FOLDER_VARIABLE, UnpackedImage, write_description
from kernel_matrix.errors import SandboxError
from kernel_matrix.inside import confine
from kernel_matrix.model.enums import Role
from kernel_matrix.platforms import NO_ACCESS, Gpu
from kernel_matrix.platforms.check_result import CheckVerdict
from kernel_matrix.platforms.container_ways import CDI, DEVICES
from kernel_matrix.platforms.rocm import device_access
from kernel_matrix.platforms.rocm.device_access import container_access, process_access
from kernel_matrix.platforms.rocm.doctor_access import examine_access
from kernel_matrix.sandboxes import ProcessLabels, RoleSpec
from kernel_matrix.sandboxes.docker_request import DaemonInfo, create_request
from kernel_matrix.sandboxes.process import ProcessSandbox
from kernel_matrix.sandboxes.unpacked import UnpackedSandbox

MI300X = Gpu(platform="rocm", uuid="a5ff74a1-0000-1000-80f6", name="AMD Instinct MI300X", index=0, minor=129)
UNKNOWN = Gpu(platform="rocm", uuid="b", name="AMD GPU", index=1)
UNIQUE_ID = 0xEF2C1799A1F3E2ED
RENDER_GROUP = 4242


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``/dev`` of a machine with two GPUs."""
    folder = tmp_path / "dev"
    (folder / "dri").mkdir(parents=True)
    for name in ("kfd", "dri/card1", "dri/renderD128", "dri/renderD129"):
        (folder / name).write_text("a node")
        (folder / name).chmod(0o666)
    monkeypatch.setattr(device_access, "_DEV", folder)
    return folder


@pytest.fixture(autouse=True)
def sys_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``/sys`` with a processor and two GPUs, of which only the second has a unique number."""
    nodes, device = tmp_path / "sys/class/kfd/kfd/topology/nodes", tmp_path / "sys/devices/pci0000:60/0000:65:00.0"
    for number, (minor, unique) in enumerate(((0, 0), (128, 0), (129, UNIQUE_ID))):
        (nodes / str(number)).mkdir(parents=True)
        properties = f"simd_count 1216\ndrm_render_minor {minor}\nunique_id {unique}\n"
        (nodes / str(number) / "properties").write_text(properties)
    device.mkdir(parents=True)
    (tmp_path / "sys/class/drm/renderD129").mkdir(parents=True)
    (tmp_path / "sys/class/drm/renderD129/device").symlink_to(device)
    monkeypatch.setattr(device_access, "_SYS", tmp_path / "sys")
    return tmp_path / "sys"


@pytest.fixture
def render_group(dev: Path) -> None:
    """Nodes that only a group may use."""
    if os.geteuid() != 0:
        pytest.skip("only root gives a file to another group")
    for name in ("kfd", "dri/renderD129"):
        os.chown(dev / name, 0, RENDER_GROUP)
        (dev / name).chmod(0o660)


def spec(**changes: Any) -> RoleSpec:
    values: dict[str, Any] = {
        "role": Role.CANDIDATE,
        "labels": ProcessLabels(run_id="r", cell_id="c", session=0, gpu_uuid=MI300X.uuid, owner="1:2:3"),
        "image": "sha256:1",
        "module": "kernel_matrix.inside.worker.worker",
        "gpu": MI300X,
    }
    return RoleSpec(**{**values, **changes})


def request(info: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Host settings and environment that would be asked for."""
    body = create_request(spec(), DaemonInfo(info), unlimited_memlock=False)
    return body["HostConfig"], dict(line.split("=", 1) for line in body["Env"])


def specification(folder: Path, *devices: tuple[str, Sequence[str]], kind: str = "amd.com/gpu") -> dict[str, Any]:
    """What a daemon says that has these devices in a specification: (name, render nodes)."""
    described = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/dri/{node}"} for node in nodes]}}
        for name, nodes in devices
    ]
    (folder / "cdi").mkdir(exist_ok=True)
    (folder / "cdi/amd.json").write_text(json.dumps({"kind": kind, "devices": described}))
    return {"CDISpecDirs": [str(folder / "cdi")]}


@pytest.mark.usefixtures("dev", "render_group")
def test_nodes_of_one_gpu_are_shown_with_their_group(dev: Path) -> None:
    host, env = request({})
    assert [entry["PathOnHost"] for entry in host["Devices"]] == [str(dev / "kfd"), str(dev / "dri/renderD129")]
    assert host["GroupAdd"] == [str(RENDER_GROUP)]
    assert env["AMD_VISIBLE_DEVICES"] == "none"
    assert "ROCR_VISIBLE_DEVICES" not in env


@pytest.mark.usefixtures("dev")
def test_nodes_that_all_may_use_need_no_group() -> None:
    assert "GroupAdd" not in request({})[0]


@pytest.mark.usefixtures("dev")
@pytest.mark.parametrize(
    "listing",
    [{}, {"DiscoveredDevices": [{"Source": "cdi", "ID": f"amd.com/gpu={name}"} for name in ("0", "1", "all")]}],
)
def test_cdi_device_is_chosen_by_its_render_node(tmp_path: Path, listing: dict[str, Any]) -> None:
    info = specification(tmp_path, ("all", ["renderD128", "renderD129"]), ("0", ["renderD129"]), ("1", ["renderD128"]))
    host, _ = request({**info, **listing})
    (wish,) = host["DeviceRequests"]
    assert (wish["Driver"], wish["DeviceIDs"]) == ("cdi", ["amd.com/gpu=0"])
    assert not host.get("Devices")


@pytest.mark.usefixtures("dev")
@pytest.mark.parametrize(
    "change",
    [
        {"BuildahVersion": "1.28.2"},
        {"DiscoveredDevices": []},
        {"DiscoveredDevices": [{"Source": "cdi", "ID": "amd.com/gpu=all"}]},
    ],
)
def test_nodes_are_taken_where_cdi_cannot_be(tmp_path: Path, change: dict[str, Any]) -> None:
    info = specification(tmp_path, ("0", ["renderD129"]))
    assert container_access({**info, **change}, MI300X).way == DEVICES


@pytest.mark.usefixtures("dev")
@pytest.mark.parametrize(
    "text", ["kind: amd.com/gpu\n", "{}", "[]", '{"kind": "amd.com/gpu", "devices": [{}]}', "\xff"]
)
def test_a_specification_of_another_form_is_passed_over(tmp_path: Path, text: str) -> None:
    info = specification(tmp_path)
    (tmp_path / "cdi/amd.json").write_text(text)
    assert container_access(info, MI300X).way == DEVICES


def test_any_gpu_has_a_way_if_the_driver_or_cdi_has(dev: Path) -> None:
    assert container_access({}).way == DEVICES
    assert container_access({"DiscoveredDevices": [{"Source": "cdi", "ID": "amd.com/gpu=0"}]}).way == CDI
    (dev / "kfd").unlink()
    assert container_access({}).way == NO_ACCESS


@pytest.mark.parametrize("missing", ["kfd", "dri/renderD129"])
def test_no_way_at_all_is_a_sandbox_error(dev: Path, missing: str) -> None:
    (dev / missing).unlink()
    with pytest.raises(SandboxError, match=MI300X.uuid) as caught:
        request({})
    assert "modprobe amdgpu" in caught.value.next_step


@pytest.mark.usefixtures("dev")
def test_a_gpu_of_unknown_node_has_no_way() -> None:
    assert container_access({}, UNKNOWN).way == NO_ACCESS


@pytest.mark.usefixtures("dev")
def test_processes_select_the_gpu_by_the_runtimes_uuid() -> None:
    assert process_access(MI300X).environment == {"ROCR_VISIBLE_DEVICES": "GPU-ef2c1799a1f3e2ed"}


@pytest.mark.usefixtures("dev")
def test_a_gpu_without_unique_number_is_the_only_one() -> None:
    other = Gpu(platform="rocm", uuid="c", name="AMD Radeon RX 7900 XTX", minor=128)
    assert process_access(other).environment == {"ROCR_VISIBLE_DEVICES": "0"}


@pytest.mark.usefixtures("dev")
def test_processes_without_a_gpu_see_none() -> None:
    orders = ProcessSandbox().describe(spec(image=None, gpu=None))["orders"]
    assert orders["env"]["ROCR_VISIBLE_DEVICES"] == ""
    assert orders["groups"] == []


@pytest.mark.usefixtures("dev", "render_group")
def test_an_unpacked_image_gets_nodes_group_and_topology(
    dev: Path, sys_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "images"))
    image = UnpackedImage(id="sha256:1", names=(), manifest_digests=(), env={}, size_bytes=0, tree_sha256="0" * 64)
    image.root.mkdir(parents=True)
    write_description(image, image.folder)
    orders = UnpackedSandbox().describe(spec())["orders"]
    shown = {bind["target"]: bind["mode"] for bind in orders["binds"] if bind["target"].startswith(str(tmp_path))}
    assert shown == {
        str(dev / "kfd"): "dev",
        str(dev / "dri/renderD129"): "dev",
        str(sys_folder / "class/kfd"): "ro",
        str(sys_folder / "devices/pci0000:60/0000:65:00.0"): "ro",
    }
    assert orders["groups"] == [RENDER_GROUP]


@pytest.mark.usefixtures("render_group")
def test_a_confined_process_may_open_the_nodes(dev: Path) -> None:
    sandbox = ProcessSandbox()
    level = sandbox.confinement
    if not (level.is_private and level.other_user and level.namespaces == confine.ROOT):
        pytest.skip("roles have no uid of their own here")
    test = f"open({str(dev / 'kfd')!r}, 'r+').close(); open({str(dev / 'dri/renderD129')!r}, 'r+').close()"
    asked = spec(image=None, module="timeit", args=("-n1", "-r1", test))
    with sandbox.launch(asked) as running:
        end = running.wait(30)
    assert end is not None
    assert end.code == 0, end.log_tail


def examined(info: dict[str, Any]) -> list[tuple[str, CheckVerdict, str]]:
    ways = {MI300X: container_access(info, MI300X).way}
    return [(one.subject, one.verdict, one.found) for one in examine_access(info, ways)]


@pytest.mark.usefixtures("dev")
def test_doctor_says_how_the_gpu_gets_in() -> None:
    words = "GPU 0: by their device nodes, with the libraries of the image"
    assert examined({}) == [("GPUs in containers", CheckVerdict.OK, words)]


def test_doctor_names_nodes_that_only_root_may_use(dev: Path) -> None:
    (dev / "kfd").chmod(0o600)
    _, (subject, verdict, found) = examined({})
    assert (subject, verdict) == ("GPU device nodes", CheckVerdict.FAIL)
    assert str(dev / "kfd") in found
    assert "renderD129" not in found


@pytest.mark.usefixtures("render_group")
def test_doctor_warns_of_groups_in_a_rootless_daemon() -> None:
    _, (subject, verdict, _) = examined({"SecurityOptions": ["name=seccomp", "name=rootless"]})
    assert (subject, verdict) == ("GPU device nodes", CheckVerdict.WARN)
