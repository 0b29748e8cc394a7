"""Hosts, GPUs, matrices and programs as a test wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_matrix.hosts.doctor.host import DaemonAnswer, Host
from kernel_matrix.matrix import Matrix
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.platforms import Gpu, PlatformInventory
from kernel_matrix.sandboxes.docker_request import DaemonInfo
from tests.hosts.doctor.clinic import MATRIX


def host(*gpus: Gpu, info: dict[str, Any] | None = None, api: str = "1.52", reason: str = "", **settings: Any) -> Host:
    """A host with these GPUs, and a daemon that said ``info``; null: none answers."""
    made = Host(**settings)
    daemon = None if info is None else DaemonInfo(info, api)
    # What the host would ask once and remember.
    vars(made)["docker"] = DaemonAnswer(daemon=daemon, reason="" if daemon else "nobody listens")
    vars(made)["inventories"] = {"cuda": PlatformInventory(gpus=gpus, reason=reason)}
    return made


def gpu(index: int = 0, **values: Any) -> Gpu:
    """An H200, or what the test makes of it."""
    usual = {
        "platform": "cuda",
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H200",
        "compute_capability": "9.0",
        "driver": "580.159.04",
        "cuda_driver": "13.0",
        "memory_bytes": 141 << 30,
    }
    return Gpu(**{**usual, "index": index, **values})


def small_matrix(folder: Path, text: str = MATRIX) -> Matrix:
    """The matrix of a CPU and an H200, or of another ``text``, from a file in ``folder``."""
    path = folder / "matrix.toml"
    path.write_text(text)
    return load_matrix(path)


def install(folder: Path, name: str, output: str) -> None:
    """A program that prints ``output`` when it is asked for its version."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && printf '%s' '{output}'\n")
    program.chmod(0o755)
