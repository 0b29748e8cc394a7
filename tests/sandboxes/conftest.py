"""Sandboxes to test, an image to test in, and one way to start a probe."""

from __future__ import annotations

import functools
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker.errors import DockerException, ImageNotFound

from kernel_matrix.container_daemon import connect
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
from kernel_matrix.sandboxes.docker import DockerSandbox
from tests.images.tiny_images import local_entry, make_archive
from tests.sandboxes.podman import podman_service

PROBES = Path(__file__).parent / "probes"
PROBES_INSIDE = "/probes"
IMAGE = f"kernel-matrix-test/python:{platform.python_version()}"

ENGINES = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("docker", "podman")]
"""Daemons that run the containers of the sandbox ``docker``."""

REQUIRE_PODMAN = "KERNEL_MATRIX_REQUIRE_PODMAN"


@pytest.fixture(scope="session", params=[*ENGINES, *(name for name in SANDBOXES if name != "docker")])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Every registered sandbox in turn, and that of Docker with Podman as well."""
    if request.param == "unpacked":
        request.getfixturevalue("unpacked")
    if request.param == "podman":
        return DockerSandbox(request.getfixturevalue("podman"))
    return open_sandbox(request.param)


@pytest.fixture(scope="session")
def podman() -> Iterator[str]:
    """Address of a service of Podman in which a container starts."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(podman_service())
            _start_container(url)
        except (OSError, DockerException) as error:
            reason = f"Podman is installed, but does not work: {error}"
            if os.environ.get(REQUIRE_PODMAN) == "1":
                pytest.fail(f"{REQUIRE_PODMAN}=1, but {reason}", pytrace=False)
            pytest.skip(reason)
        yield url


def _start_container(url: str) -> None:
    """Start a container that does not matter.

    Raises:
        DockerException: if that is not possible.
    """
    with closing(connect(url, timeout_s=60)) as client:
        limits = [{"Name": name, "Soft": 1024, "Hard": 1024} for name in ("nofile", "nproc")]
        settings = {"NetworkMode": "none", "Ulimits": limits}
        request = {"Image": image_of(url), "Entrypoint": ["python3", "-V"], "HostConfig": settings}
        name = client.api.create_container_from_config(request)["Id"]
        client.api.start(name)
        client.api.wait(name)
        client.api.remove_container(name, force=True)


@pytest.fixture(scope="session")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the probes that a test may lose."""
    return Path(shutil.copytree(PROBES, tmp_path_factory.mktemp("sandboxes") / "probes"))


@pytest.fixture(scope="session")
def unpacked_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all users can pass."""
    folder = tmp_path_factory.mktemp("unpacked")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def _own_images(unpacked_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests do not see the image that is unpacked here."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(unpacked_folder / "images"))


@pytest.fixture(scope="session")
def unpacked(unpacked_folder: Path) -> str:
    """The id of a small image of this machine's own Python, unpacked."""
    tree = unpacked_folder / "tree.tar"
    tree.write_bytes(python_tree())
    archive = make_archive(tree, path="/usr/local/bin:/usr/bin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(unpacked_folder / "images"))
        return UnpackedStore().load(local_entry(archive), archive.path, print).id


@functools.cache
def image_of(url: str) -> str:
    """A small image of this machine's own Python, in the daemon at ``url``; needs no registry, made in seconds."""
    with closing(connect(url, timeout_s=60)) as client:
        try:
            return str(client.images.get(IMAGE).id)
        except ImageNotFound:
            repository, _, tag = IMAGE.partition(":")
            answer = client.api.import_image_from_data(python_tree(), repository=repository, tag=tag)
            return str(json.loads(answer.splitlines()[-1])["status"])


@pytest.fixture
def spec(probes: Path, request: pytest.FixtureRequest) -> Callable[..., RoleSpec]:
    """Makes the spec that runs one function of ``probes/act.py``: ``spec(sandbox, "hang", "argument", uid=7)``."""

    def image_for(sandbox: Sandbox) -> str | None:
        if isinstance(sandbox, DockerSandbox):
            return image_of(sandbox.url)
        return str(request.getfixturevalue("unpacked")) if sandbox.uses_images else None

    def make(
        sandbox: Sandbox, probe: str, *args: str, limits: ResourceLimits | None = None, **changes: Any
    ) -> RoleSpec:
        labels = ProcessLabels(
            run_id=f"test-{uuid.uuid4().hex[:8]}", cell_id="c" * 16, session=0, gpu_uuid="cpu", owner=owner_token()
        )
        plain = RoleSpec(
            role=Role.CANDIDATE,
            labels=labels,
            image=image_for(sandbox),
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
