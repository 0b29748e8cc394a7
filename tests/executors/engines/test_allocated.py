"""Which devices of a node a job may use, by what its engine says of it."""

from __future__ import annotations

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
    for name in (local.DEVICE_VARIABLE, "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"):
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
