"""Which sandbox a run uses, and why not another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.environments import PythonEnvironment
from kernel_matrix.errors import InfrastructureError, PythonEnvironmentError, UsageError
from kernel_matrix.hosts import survey as survey_module
from kernel_matrix.hosts.survey import survey
from kernel_matrix.images import ResolvedImage
from kernel_matrix.matrix import CandidateSet, Matrix, ProblemSet
from kernel_matrix.model.enums import Dtype
from kernel_matrix.platforms import PlatformInventory
from kernel_matrix.sandboxes import SandboxStatus
from tests.plan.nouns import CPU, CPU_DEVICE, CPU_TOOLCHAIN, CU128, H200, H200_DEVICE, HERE

RESOLVED = ResolvedImage(
    toolchain="cpu", reference="r", id="sha256:1", repo_digest=None, store="overlay2", state="local"
)


class Answers:
    """A sandbox that is there, or says why not."""

    def __init__(self, name, reason=""):
        self.name = name
        self.uses_images = name != "process"
        self._reason = reason

    def status(self):
        return SandboxStatus(name=self.name, available=not self._reason, reason=self._reason, version="1.0")


@pytest.fixture
def host(monkeypatch):
    """Sets up a host: why sandboxes cannot be used, what images it has, its devices."""

    def made(*, images=None, gpus=(CPU_DEVICE,), unpacked="nothing is unpacked", **reasons):
        reasons["unpacked"] = unpacked
        monkeypatch.setattr(survey_module, "open_sandbox", lambda name: Answers(name, reasons.get(name, "")))
        monkeypatch.setattr(survey_module, "_images", lambda *_, **__: images or {})
        inventories = {"cpu": PlatformInventory(gpus=gpus), "cuda": PlatformInventory(reason="no NVIDIA driver")}
        monkeypatch.setattr(survey_module, "host_inventory", lambda: inventories)

    return made


ENVIRONMENT = PythonEnvironment(
    prefix="/venv",
    executable="/venv/bin/python",
    python="CPython 3.12.3",
    folders=("/venv",),
    distributions={"torch": "2.11.0+cu130", "triton": "3.6.0"},
    torch_builds={"cuda": "13.0.1"},
    digest="sha256:2",
)


@pytest.fixture
def matrix(tmp_path):
    return Matrix(
        name="small",
        path=tmp_path / "matrix.toml",
        gpus=(CPU, H200),
        toolchains=(CPU_TOOLCHAIN, CU128),
        dtypes=(Dtype.FP32,),
        problems=(ProblemSet(source="folder", path=tmp_path),),
        candidates=(CandidateSet(),),
    )


def test_docker_is_taken_where_it_has_an_image_for_a_device(host, matrix):
    host(images={"cpu": RESOLVED, "cu128": "not here"})
    found = survey(matrix)
    assert found.sandbox.name == found.inventory.sandbox == "docker"
    assert found.images == {"cpu": RESOLVED}
    assert found.inventory.images == {"cpu": "", "cu128": "not here"}
    assert found.inventory.sandbox_reason == ""


def test_survey_without_daemon_selects_process_and_keeps_reason(host, matrix):
    host(docker="no Docker daemon answers")
    found = survey(matrix)
    assert (found.sandbox.name, found.inventory.sandbox_reason) == (
        "process",
        "no Docker daemon answers; nothing is unpacked",
    )
    assert found.images == {}


@pytest.mark.parametrize(
    "images", [{}, {"cpu": "not here", "cu128": "not here"}, {"cu128": RESOLVED}], ids=["none", "absent", "no device"]
)
def test_a_daemon_without_an_image_for_any_device_gives_way(images, host, matrix):
    host(images=images)
    found = survey(matrix)
    assert found.sandbox.name == "process"
    assert "docker answers, but has none of the pinned images" in found.inventory.sandbox_reason


def test_unpacked_images_come_before_local_processes(host, matrix):
    host(images={"cpu": RESOLVED}, docker="no Docker daemon answers", unpacked="")
    found = survey(matrix)
    assert (found.sandbox.name, found.inventory.sandbox_reason) == ("unpacked", "no Docker daemon answers")
    assert found.images == {"cpu": RESOLVED}


def test_an_image_for_a_gpu_counts_where_the_gpu_is(host, matrix):
    host(images={"cu128": RESOLVED}, gpus=(CPU_DEVICE, H200_DEVICE))
    assert survey(matrix).sandbox.name == "docker"


def test_docker_that_was_asked_for_is_taken_without_images_too(host, matrix):
    host(images={"cpu": "not here"})
    found = survey(matrix, sandbox="docker")
    assert found.sandbox.name == "docker"
    assert found.inventory.images == {"cpu": "not here"}


def test_requested_absent_sandbox_is_an_error_with_advice(host, matrix):
    host(docker="no Docker daemon answers")
    with pytest.raises(InfrastructureError, match="sandbox docker cannot be used: no Docker daemon answers") as caught:
        survey(matrix, sandbox="docker")
    assert "--sandbox auto" in caught.value.next_step


def test_survey_without_usable_sandbox_still_returns_inventory(host, matrix):
    host(docker="no Docker daemon answers", process="torch is not installed")
    found = survey(matrix).inventory
    assert found.sandbox == "process"
    assert found.sandbox_reason == "no Docker daemon answers; nothing is unpacked"


def test_an_unknown_sandbox_is_refused_with_the_known_ones(host, matrix):
    host()
    with pytest.raises(UsageError, match=r"unknown sandbox 'podman'\n.*allowed: auto, docker, unpacked, process"):
        survey(matrix, sandbox="podman")


def test_why_devices_are_missing_is_kept(host, matrix):
    host()
    found = survey(matrix).inventory
    assert found.gpus == (CPU_DEVICE,)
    assert found.gpu_reason == "no NVIDIA driver"


def test_devices_that_the_matrix_does_not_name_are_not_missed(host, matrix):
    host()
    assert survey(replace(matrix, gpus=(CPU,))).inventory.gpu_reason == ""


def test_survey_reads_lock_beside_matrix_unless_another_is_named(host, matrix, monkeypatch):
    host()
    read: list[Path] = []
    monkeypatch.setattr(survey_module, "_images", lambda _sandbox, _matrix, lock, **_: read.append(lock) or {})
    survey(matrix, sandbox="docker")
    survey(matrix, sandbox="docker", lock_path=Path("/other.lock"))
    assert read == [matrix.root / "images" / "images.lock", Path("/other.lock")]


@pytest.mark.docker
def test_survey_with_real_daemon_names_each_missing_image(matrix):
    found = survey(matrix, sandbox="docker")
    assert set(found.inventory.images) == {"cpu", "cu128"}
    assert all("images" in reason for reason in found.inventory.images.values())
    assert found.images == {}


@pytest.fixture
def with_environment(matrix, monkeypatch):
    """A matrix whose toolchain is an environment; what is read of it is given, or the reason why it cannot be."""

    def made(found=ENVIRONMENT, toolchain=HERE):
        def read(_where):
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(survey_module, "read_environment", read)
        return replace(matrix, toolchains=(toolchain,))

    return made


def test_environment_is_described_for_its_platform(host, with_environment):
    host(gpus=(CPU_DEVICE, H200_DEVICE))
    found = survey(with_environment(), sandbox="process")
    assert found.inventory.environments == {
        "here": replace(HERE, platform="cuda", cuda="13.0", torch="2.11.0", triton="3.6.0")
    }
    image = found.images["here"]
    assert (image.id, image.state, image.reference) == ("sha256:2", "environment", "/venv")


def test_environment_of_a_cpu_build_is_for_the_cpu(host, with_environment):
    host()
    found = survey(with_environment(replace(ENVIRONMENT, torch_builds={})), sandbox="process")
    assert found.inventory.environments["here"].platform == "cpu"


def test_environment_keeps_the_platform_that_it_names(host, with_environment):
    host()
    found = survey(with_environment(toolchain=replace(HERE, platform="cpu")), sandbox="process")
    assert found.inventory.environments["here"].platform == "cpu"


def test_torch_for_the_cpu_does_not_serve_a_gpu(host, with_environment):
    host(gpus=(CPU_DEVICE, H200_DEVICE))
    for_gpus = replace(HERE, platform="cuda")
    found = survey(with_environment(replace(ENVIRONMENT, torch_builds={}), for_gpus), sandbox="process")
    assert "PyTorch 2.11.0+cu130 in /venv is not built for cuda" in found.inventory.images["here"]


def test_unusable_environment_is_a_reason(host, with_environment):
    host()
    found = survey(with_environment(PythonEnvironmentError("it has no PyTorch")), sandbox="process")
    assert found.inventory.images == {"here": "it has no PyTorch"}
    assert (found.images, found.inventory.environments) == ({}, {})


def test_environment_alone_needs_no_docker(host, with_environment):
    host(gpus=(CPU_DEVICE, H200_DEVICE))
    assert survey(with_environment()).sandbox.name == "process"
