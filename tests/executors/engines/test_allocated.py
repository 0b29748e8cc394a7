"""Which devices of a node a job may use, by what its engine says of it."""

from __future__ import annotations

import os

import pytest

from kernel_matrix.executors.engines import EngineError, local, ray_jobs, slurm
from kernel_matrix.platforms import Gpu

CPU = Gpu(platform="cpu", uuid="cpu", name="EPYC")
GPUS = tuple(
    Gpu(platform="cuda", uuid=f"GPU-{minor}", name="NVIDIA H200", index=3 - minor, minor=minor)
    for minor in (10, 3, 2, 0)
)
DEVICES = (*GPUS[:2], CPU, *GPUS[2:])
"""The driver lists devices in an order of its own."""


def allocated(engine, *devices):
    return tuple(gpu.uuid for gpu in engine.allocated(devices or DEVICES))


@pytest.fixture(autouse=True)
def no_job(monkeypatch):
    """No engine has started this process."""
    for name in (local.DEVICE_VARIABLE, "SLURMD_NODENAME", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("listed", "uuids"),
    [
        ("0", ("GPU-0",)),
        ("1", ("GPU-2",)),  # device files need not be numbered without gaps
        ("3", ("GPU-10",)),
        ("2,0", ("GPU-3", "GPU-0")),
        ("1,1", ("GPU-2",)),
    ],
)
def test_slurm_counts_device_files(monkeypatch, listed, uuids):
    monkeypatch.setenv("SLURM_JOB_GPUS", listed)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # it counts from 0 in every job
    assert allocated(slurm) == uuids


@pytest.fixture
def slurmd(tmp_path, monkeypatch):
    """Lets ``slurmd -G`` name device files of this folder; returns how."""
    if os.geteuid() != 0:
        pytest.skip("only root makes device files")
    for minor in (0, 2, 3, 10):
        os.mknod(tmp_path / f"nvidia{minor}", 0o20666, os.makedev(195, minor))

    def names(*files):
        lines = [
            f"slurmd: Gres Name=gpu Type=h200 Count=1 Index=7 ID=7 File={tmp_path}/{file} (null)" for file in files
        ]
        (tmp_path / "slurmd").write_text("\n".join(("#!/bin/sh", "cat <<END", *lines, "END\n")))
        (tmp_path / "slurmd").chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    return names


@pytest.mark.parametrize(
    ("files", "uuids"),
    [
        (("nvidia[2-3]",), ("GPU-2", "GPU-3")),
        (("nvidia[10,0]",), ("GPU-10", "GPU-0")),
        (("nvidia3", "nvidia0"), ("GPU-3", "GPU-0")),
        (("nvidia7",), ("GPU-0", "GPU-2")),  # there is no such file, so nothing is known
        ((), ("GPU-0", "GPU-2")),
    ],
)
def test_slurm_names_the_device_files_of_a_node(slurmd, monkeypatch, files, uuids):
    slurmd(*files)
    monkeypatch.setenv("SLURM_JOB_GPUS", "0,1")
    assert allocated(slurm) == uuids


def test_slurm_device_that_the_driver_does_not_know_is_told(slurmd, tmp_path, monkeypatch):
    os.mknod(tmp_path / "nvidia5", 0o20666, os.makedev(195, 5))
    slurmd("nvidia0", "nvidia5")
    monkeypatch.setenv("SLURM_JOB_GPUS", "1")
    with pytest.raises(EngineError, match="Slurm gave this job GPU 1"):
        allocated(slurm)


@pytest.mark.parametrize("listed", [None, ""])
def test_slurm_job_without_gpus_has_the_cpus(monkeypatch, listed):
    if listed is not None:
        monkeypatch.setenv("SLURM_JOB_GPUS", listed)
    assert allocated(slurm) == ("cpu",)
    assert slurm.allocated(GPUS) == ()


@pytest.mark.parametrize("listed", ["4", "-1", "0,4", "0,", "0-1", " 0", "1_0", "h200", "GPU-0", "None", "٠"])
def test_slurm_place_that_is_not_there_is_told(monkeypatch, listed):
    monkeypatch.setenv("SLURM_JOB_GPUS", listed)
    with pytest.raises(EngineError) as caught:
        allocated(slurm)
    assert caught.value.what.startswith(f"Slurm gave this job GPU {listed}, and the driver knows: NVIDIA H200 (0), ")
    assert "gres.conf" in caught.value.next_step


def test_slurm_gpu_on_a_node_without_driver_is_told(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_GPUS", "0")
    with pytest.raises(EngineError, match="GPU 0, and the driver knows: none"):
        allocated(slurm, CPU)


@pytest.mark.parametrize("uuid", ["cpu", "GPU-2"])
def test_local_job_has_its_device_alone(monkeypatch, uuid):
    monkeypatch.setenv(local.DEVICE_VARIABLE, uuid)
    assert allocated(local) == (uuid,)


@pytest.mark.parametrize(
    ("uuid", "said"), [(None, "(none)"), ("", "(none)"), ("GPU-1", "GPU-1"), ("0", "0"), ("GPU-2,GPU-3", "GPU-2,GPU-3")]
)
def test_local_device_that_is_not_here_is_told(monkeypatch, uuid, said):
    if uuid is not None:
        monkeypatch.setenv(local.DEVICE_VARIABLE, uuid)
    with pytest.raises(EngineError) as caught:
        allocated(local)
    assert caught.value.what == f"the device {said} of this job is not here"
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("listed", "uuids"),
    [("-7", ("GPU-10",)), ("0", ("GPU-3",)), ("1,3", ("GPU-2", "GPU-0")), ("GPU-2", ("GPU-2",)), ("", ("cpu",))],
)
def test_ray_names_indexes_of_the_driver_or_uuids(monkeypatch, listed, uuids):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert allocated(ray_jobs) == uuids


@pytest.mark.parametrize("listed", ["9", "0,9", "0,0", "0,GPU-3", "GPU-1", "NoDevFiles", " 0", "0,"])
def test_ray_device_that_is_not_here_is_told(monkeypatch, listed):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    with pytest.raises(EngineError) as caught:
        allocated(ray_jobs)
    assert caught.value.what.startswith(f"Ray gave this job GPU {listed}, and the driver knows: NVIDIA H200 (-7), ")
