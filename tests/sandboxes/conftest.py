"""Sandboxes to test, an image to test in, and one way to start a probe."""

from __future__ import annotations

import io
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import ImageNotFound

from kernel_matrix.environments.unpacked_images import FOLDER_VARIABLE
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.images.unpacked_store import UnpackedStore
from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import (
    SANDBOXES,
    Mount,
    ProcessExit,
    ProcessLabels,
    ResourceLimits,
    RoleSpec,
    RunningProcess,
    Sandbox,
    open_sandbox,
)
from tests.images.tiny_images import local_entry, make_archive

PROBES = Path(__file__).parent / "probes"
PROBES_INSIDE = "/probes"
IMAGE = f"kernel-matrix-test/python:{platform.python_version()}"

IMAGES = {"docker": "image", "unpacked": "unpacked"}
"""Sandbox → fixture with the image that it runs."""

SANDBOX_PARAMS = [pytest.param(name, marks=pytest.mark.docker) if name == "docker" else name for name in SANDBOXES]


@pytest.fixture(scope="session", params=SANDBOX_PARAMS)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Every registered sandbox in turn."""
    if request.param == "unpacked":
        request.getfixturevalue("unpacked")
    return open_sandbox(request.param)


@pytest.fixture(scope="session")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the probes that a test may lose."""
    return Path(shutil.copytree(PROBES, tmp_path_factory.mktemp("sandboxes") / "probes"))


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The id of a small image of this machine's own Python, unpacked in a folder of its own."""
    folder = tmp_path_factory.mktemp("unpacked")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    tree = folder / "tree.tar"
    tree.write_bytes(python_tree())
    archive = make_archive(tree, path="/usr/local/bin:/usr/bin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(folder / "images"))
        yield UnpackedStore().load(local_entry(archive), archive.path, print).id


@pytest.fixture(scope="session")
def image() -> str:
    """A small image of this machine's own Python: needs no registry and is made in seconds."""
    client = docker.from_env()
    try:
        return str(client.images.get(IMAGE).id)
    except ImageNotFound:
        repository, _, tag = IMAGE.partition(":")
        client.api.import_image_from_data(python_tree(), repository=repository, tag=tag)
        return str(client.images.get(IMAGE).id)
    finally:
        client.close()


@pytest.fixture
def spec(probes: Path, request: pytest.FixtureRequest) -> Callable[..., RoleSpec]:
    """Makes the spec that runs one function of ``probes/act.py``: ``spec(sandbox, "hang", "argument", uid=7)``."""

    def make(
        sandbox: Sandbox, probe: str, *args: str, limits: ResourceLimits | None = None, **changes: Any
    ) -> RoleSpec:
        labels = ProcessLabels(
            run_id=f"test-{uuid.uuid4().hex[:8]}", cell_id="c" * 16, session=0, gpu_uuid="cpu", owner=owner_token()
        )
        plain = RoleSpec(
            role=Role.CANDIDATE,
            labels=labels,
            image=request.getfixturevalue(IMAGES[sandbox.name]) if sandbox.uses_images else None,
            module="act",
            args=(probe, *args),
            mounts=(Mount(source=probes, target=PROBES_INSIDE),),
            env={"PYTHONPATH": PROBES_INSIDE},
            limits=limits or ResourceLimits(memory_bytes=1 << 30, pids=64, tmpfs_bytes=16 << 20),
        )
        return replace(plain, **changes)

    return make


@pytest.fixture
def started(sandbox: Sandbox, spec: Callable[..., RoleSpec]) -> Callable[..., AbstractContextManager[RunningProcess]]:
    """``started("hang")``: the probe, running."""
    return lambda *args, **changes: sandbox.launch(spec(sandbox, *args, **changes))


@pytest.fixture
def run(started: Callable[..., AbstractContextManager[RunningProcess]]) -> Callable[..., ProcessExit]:
    """``run("exit_with", "3")``: how the probe ended by itself."""

    def to_the_end(*args: str, **changes: Any) -> ProcessExit:
        with started(*args, **changes) as running:
            end = running.wait(60)
        assert end is not None, "the probe did not end"
        return end

    return to_the_end


def python_tree() -> bytes:
    """A tar archive with this Python, its standard library and the shared libraries both need."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    binary = Path(sys.executable).resolve()
    left_out = re.compile(r"/(site-packages|dist-packages|test|tests|__pycache__|config-[^/]*|idlelib|ensurepip)(/|$)")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(stdlib, filter=lambda entry: None if left_out.search(f"/{entry.name}") else _plain(entry))
        for file in {binary, *_libraries([binary, *stdlib.glob("lib-dynload/*.so")])}:
            tar.add(file.resolve(), arcname=str(file).lstrip("/"), filter=_plain)
        link = tarfile.TarInfo("usr/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, str(binary)
        if str(binary) != "/usr/bin/python3":
            tar.addfile(link)
    return buffer.getvalue()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The entry, readable by every user."""
    entry.mode |= 0o555 if entry.isdir() or entry.mode & 0o100 else 0o444
    return entry


def _libraries(binaries: list[Path]) -> Iterator[Path]:
    """Shared libraries that the binaries are linked with, the dynamic linker too."""
    listing = subprocess.run(("ldd", *map(str, binaries)), check=True, capture_output=True, text=True).stdout
    for match in re.finditer(r"(?:=> |^\s)(/\S+) \(0x", listing, re.MULTILINE):
        yield Path(match[1])
