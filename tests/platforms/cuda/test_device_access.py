"""Which way a GPU takes into a container, and what is asked for on each."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from kernel_matrix.environments.unpacked_images import FOLDER_VARIABLE, UnpackedImage, write_description
from kernel_matrix.errors import SandboxError
from kernel_matrix.model.enums import Role
from kernel_matrix.platforms import NO_ACCESS, Gpu, container_ways
from kernel_matrix.platforms.container_ways import CDI, DEVICES
from kernel_matrix.platforms.cuda.device_access import TOOLKIT, driver_libraries, way_into_containers
from kernel_matrix.sandboxes import ProcessLabels, RoleSpec
from kernel_matrix.sandboxes.docker_request import DaemonInfo, create_request
from kernel_matrix.sandboxes.unpacked import UnpackedSandbox

UUID = "GPU-11111111-2222-3333-4444-555555555555"
TOOLKIT_INFO = {"Runtimes": {"runc": {}, "nvidia": {"path": "nvidia-container-runtime"}}}
CDI_INFO = {"DiscoveredDevices": [{"Source": "cdi", "ID": f"nvidia.com/gpu={UUID}"}], **TOOLKIT_INFO}
OLD_PODMAN = {"BuildahVersion": "1.28.2", "ServerVersion": "4.3.1"}
PODMAN = {"BuildahVersion": "1.39.3", "ServerVersion": "5.4.2"}


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``/dev`` of a machine with two GPUs."""
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm"):
        (folder / name).touch()
    monkeypatch.setattr("kernel_matrix.platforms.cuda.device_access._DEV", folder)
    return folder


@pytest.fixture
def no_dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_matrix.platforms.cuda.device_access._DEV", tmp_path)


@pytest.fixture
def driver_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nvidia" / "lib64").mkdir(parents=True)
    monkeypatch.setattr("kernel_matrix.platforms.cuda.device_access._DRIVER_FOLDER", tmp_path / "nvidia")
    return tmp_path / "nvidia"


def spec() -> RoleSpec:
    return RoleSpec(
        role=Role.CANDIDATE,
        labels=ProcessLabels(run_id="r", cell_id="c", session=0, gpu_uuid=UUID, owner="1:2:3"),
        image="sha256:1",
        module="kernel_matrix.inside.worker.worker",
        gpu=Gpu(platform="cuda", uuid=UUID, name="NVIDIA H200", index=0, minor=3),
    )


def request(info: dict[str, Any], *, unlimited_memlock: bool = False) -> tuple[dict[str, Any], dict[str, str]]:
    """Host settings and environment that would be asked for."""
    body = create_request(spec(), DaemonInfo(info), unlimited_memlock=unlimited_memlock)
    return body["HostConfig"], dict(line.split("=", 1) for line in body["Env"])


@pytest.mark.usefixtures("no_dev")
@pytest.mark.parametrize(
    ("info", "access"),
    [
        (CDI_INFO, CDI),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=GPU-other"}], **TOOLKIT_INFO}, TOOLKIT),
        (TOOLKIT_INFO, TOOLKIT),
        ({"Runtimes": {"runc": {}}, "CDISpecDirs": None}, NO_ACCESS),
        ({}, NO_ACCESS),
    ],
)
def test_the_surest_way_is_taken(info: dict[str, Any], access: str) -> None:
    assert way_into_containers(info, UUID) == access


@pytest.mark.usefixtures("no_dev")
def test_older_daemons_name_only_the_folders_of_cdi(tmp_path: Path) -> None:
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / "nvidia.yaml").write_text(f"kind: nvidia.com/gpu\ndevices:\n- name: {UUID}\n")
    info = {"CDISpecDirs": [str(tmp_path / "absent"), str(tmp_path / "cdi")]}
    assert way_into_containers(info, UUID) == CDI
    assert way_into_containers(info, "GPU-other") == NO_ACCESS
    assert way_into_containers(info) == CDI


@pytest.mark.usefixtures("dev")
def test_device_nodes_are_the_last_way() -> None:
    assert way_into_containers({}, UUID) == DEVICES
    assert way_into_containers(TOOLKIT_INFO, UUID) == TOOLKIT


@pytest.mark.usefixtures("dev")
@pytest.mark.parametrize(("podman", "way"), [(OLD_PODMAN, DEVICES), (PODMAN, CDI)])
def test_podman_is_asked_for_cdi_devices_from_version_5_4_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, podman: dict[str, str], way: str
) -> None:
    (tmp_path / "nvidia.yaml").write_text(f"kind: nvidia.com/gpu\ndevices:\n- name: {UUID}\n")
    monkeypatch.setattr(container_ways, "_PODMAN_FOLDERS", (str(tmp_path),))
    assert way_into_containers(podman, UUID) == way
    assert way_into_containers(podman, "GPU-other") == DEVICES


@pytest.mark.usefixtures("dev")
@pytest.mark.parametrize(
    ("info", "podman"), [(CDI_INFO, OLD_PODMAN), (TOOLKIT_INFO, OLD_PODMAN), (TOOLKIT_INFO, PODMAN)]
)
def test_podman_gets_device_nodes_where_it_drops_requests(info: dict[str, Any], podman: dict[str, str]) -> None:
    assert way_into_containers({**info, **podman}, UUID) == DEVICES


def test_cdi_is_asked_for_by_name() -> None:
    host, env = request(CDI_INFO)
    (wish,) = host["DeviceRequests"]
    assert (wish["Driver"], wish["DeviceIDs"]) == ("cdi", [f"nvidia.com/gpu={UUID}"])
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_the_toolkit_is_asked_for_one_uuid() -> None:
    host, env = request(TOOLKIT_INFO)
    (wish,) = host["DeviceRequests"]
    assert wish["DeviceIDs"] == [UUID]
    assert wish["Capabilities"] == [["gpu", "utility", "compute"]]
    assert env["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def test_only_the_nodes_of_one_gpu_are_shown(dev: Path, driver_folder: Path) -> None:
    host, env = request({})
    assert [entry["PathOnHost"] for entry in host["Devices"]] == [
        str(dev / name) for name in ("nvidia3", "nvidiactl", "nvidia-uvm")
    ]
    assert {entry["CgroupPermissions"] for entry in host["Devices"]} == {"rw"}
    mount = host["Mounts"][-1]
    assert (mount["Source"], mount["Target"], mount["ReadOnly"]) == (str(driver_folder), "/usr/local/nvidia", True)
    assert env["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64:/usr/local/nvidia/lib"


@pytest.mark.usefixtures("no_dev")
def test_no_way_at_all_is_a_sandbox_error() -> None:
    with pytest.raises(SandboxError, match=UUID) as caught:
        request({})
    assert "container toolkit" in caught.value.next_step


def test_locked_memory_is_lifted_for_gpus_only_when_wanted() -> None:
    assert "memlock" not in [limit["Name"] for limit in request(CDI_INFO)[0]["Ulimits"]]
    assert "memlock" in [limit["Name"] for limit in request(CDI_INFO, unlimited_memlock=True)[0]["Ulimits"]]


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UnpackedImage:
    """An image without content."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "images"))
    image = UnpackedImage(
        id="sha256:1", names=(), manifest_digests=(), env={}, size_bytes=0, tree_sha256=hashlib.sha256().hexdigest()
    )
    image.root.mkdir(parents=True)
    write_description(image, image.folder)
    return image


@pytest.mark.usefixtures("dev", "unpacked")
def test_an_unpacked_image_gets_nodes_and_the_hosts_driver(driver_folder: Path, dev: Path) -> None:
    orders = UnpackedSandbox().describe(spec())["orders"]
    shown = {bind["target"]: (bind["source"], bind["mode"]) for bind in orders["binds"]}
    assert shown["/usr/local/nvidia"] == (str(driver_folder), "ro")
    assert {target for target, (_, mode) in shown.items() if mode == "dev" and "nvidia" in target} == {
        str(dev / name) for name in ("nvidia3", "nvidiactl", "nvidia-uvm")
    }
    assert orders["env"]["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64:/usr/local/nvidia/lib"
    assert orders["env"]["CUDA_VISIBLE_DEVICES"] == UUID


@pytest.mark.usefixtures("dev", "unpacked")
def test_a_host_without_the_drivers_libraries_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_matrix.platforms.cuda.device_access._DRIVER_FOLDER", tmp_path / "none")
    monkeypatch.setattr("kernel_matrix.platforms.cuda.device_access.driver_libraries", tuple)
    with pytest.raises(SandboxError, match="were not found on this host") as caught:
        UnpackedSandbox().describe(spec())
    assert "ldconfig -p" in caught.value.next_step


def test_driver_libraries_come_from_the_linker_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "libcuda.so.580.1"
    library.touch()
    (tmp_path / "libcuda.so.1").symlink_to(library)
    listing = (
        "3 libs found in cache `/etc/ld.so.cache'\n"
        f"\tlibcuda.so.1 (libc6,x86-64) => {tmp_path}/libcuda.so.1\n"
        f"\tlibcuda.so.1 (libc6) => {tmp_path}/lib32/libcuda.so.1\n"
        "\tlibcurl.so.4 (libc6,x86-64) => /lib/libcurl.so.4\n"
    )
    ldconfig = tmp_path / "ldconfig"
    ldconfig.write_text(f"#!/bin/sh\ncat <<'EOT'\n{listing}EOT\n")
    ldconfig.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("kernel_matrix.platforms.cuda.device_access._DRIVER_FOLDER", tmp_path / "absent")
    (found,) = driver_libraries()
    assert (found.source, found.target) == (library, "/usr/local/nvidia/lib64/libcuda.so.1")
