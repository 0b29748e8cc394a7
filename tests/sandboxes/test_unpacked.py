"""What is the own of the sandbox of unpacked images: the image as a file system, and when it cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.environments.unpacked_images import FOLDER_VARIABLE, UnpackedImage, find_unpacked, tree_digest
from kernel_matrix.errors import ImageError, SandboxError
from kernel_matrix.inside import confine
from kernel_matrix.sandboxes import ProcessExit, RoleSpec, open_sandbox
from kernel_matrix.sandboxes.process import Confinement
from kernel_matrix.sandboxes.unpacked import UnpackedSandbox, image_binds
from tests.sandboxes.observe import answer

MakeSpec = Callable[..., RoleSpec]


class WithoutNamespaces(UnpackedSandbox):
    """The sandbox on a kernel that refuses namespaces."""

    confinement = Confinement(confine.NONE, other_user=False, refused=("namespaces could not be had: no",))


@pytest.fixture
def image(unpacked: str) -> UnpackedImage:
    found = find_unpacked(unpacked)
    assert found is not None
    return found


@pytest.fixture
def sandbox(image: UnpackedImage) -> UnpackedSandbox:
    opened = UnpackedSandbox()
    if not opened.status().available:
        pytest.skip(opened.status().reason)
    return opened


def ended(sandbox: UnpackedSandbox, spec: RoleSpec) -> ProcessExit:
    with sandbox.launch(spec) as running:
        end = running.wait(30)
    assert end is not None
    return end


def test_a_role_sees_the_image_in_place_of_the_host(
    sandbox: UnpackedSandbox, spec: MakeSpec, image: UnpackedImage
) -> None:
    (image.root / "of-the-image").touch()
    try:
        found = answer(ended(sandbox, spec(sandbox, "list_folder", "/")))
    finally:
        (image.root / "of-the-image").unlink()
    expected = {path.name for path in image.root.iterdir()} | {"of-the-image", "dev", "opt", "probes", "proc", "tmp"}
    assert set(found) - {"sys"} == expected


def test_the_image_is_the_same_afterwards(sandbox: UnpackedSandbox, spec: MakeSpec, image: UnpackedImage) -> None:
    ended(sandbox, spec(sandbox, "write_everywhere", "/", "/usr", "/usr/lib", "/opt"))
    assert tree_digest(image.root) == image.tree_sha256


def test_variables_of_the_image_give_way_to_the_roles(
    sandbox: UnpackedSandbox, spec: MakeSpec, image: UnpackedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = replace(image, env={"PATH": "/usr/bin:/usr/local/bin", "HOME": "/root", "OWN": "1"})
    monkeypatch.setattr("kernel_matrix.sandboxes.unpacked.find_unpacked", lambda _id: changed)
    found = answer(ended(sandbox, spec(sandbox, "look_inward")))["environment"]
    assert (found["PATH"], found["OWN"], found["HOME"]) == ("/usr/bin:/usr/local/bin", "1", "/tmp")


def test_an_image_without_python_is_named(
    sandbox: UnpackedSandbox, spec: MakeSpec, image: UnpackedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = replace(image, env={"PATH": "/nowhere"})
    monkeypatch.setattr("kernel_matrix.sandboxes.unpacked.find_unpacked", lambda _id: changed)
    with pytest.raises(SandboxError, match="python3"), sandbox.launch(spec(sandbox, "exit_at_once")):
        pass


def test_an_image_that_is_not_there(sandbox: UnpackedSandbox, spec: MakeSpec) -> None:
    for absent, complaint in (("sha256:" + "0" * 64, "is not unpacked"), (None, "names no image")):
        wanted = replace(spec(sandbox, "exit_at_once"), image=absent)
        with pytest.raises(ImageError, match=complaint):
            sandbox.describe(wanted)
        with pytest.raises(ImageError, match=complaint), sandbox.launch(wanted):
            pass


@pytest.mark.usefixtures("image")
def test_without_namespaces_nothing_starts(spec: MakeSpec) -> None:
    sandbox = WithoutNamespaces()
    status = sandbox.status()
    assert not status.available
    assert status.reason == "unpacked images need namespaces: namespaces could not be had: no"
    with pytest.raises(SandboxError, match="need namespaces"), sandbox.launch(spec(sandbox, "exit_at_once")):
        pass


def test_without_an_image_the_reason_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    status = open_sandbox("unpacked").status()
    assert not status.available
    assert "images pull NAME --sandbox unpacked" in status.reason


def test_room_is_made_for_other_mounts(tmp_path: Path) -> None:
    for name in ("usr/bin", "usr/local/lib", "opt/kernel-matrix/old", "etc", "tmp/x"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "usr/local/file").touch()
    (tmp_path / "bin").symlink_to("usr/bin")
    places = ["/tmp", "/opt/kernel-matrix", "/usr/local/nvidia/lib64/x.so", "/new/folder"]
    found = {bind.target: bind.source for bind in image_binds(tmp_path, places)}
    shown = ("/bin", "/etc", "/usr/bin", "/usr/local/file", "/usr/local/lib")
    assert found == {target: f"{tmp_path}{target}" for target in shown}


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_link_on_the_way_to_a_mount_is_refused(tmp_path: Path, kind: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    root.mkdir()
    if kind == "link":
        (root / "opt").symlink_to(outside)
    else:
        (root / "opt").touch()
    with pytest.raises(ImageError, match="the image has a file or a link at /opt"):
        list(image_binds(root, ["/opt/kernel-matrix/x"]))


def test_a_link_in_the_image_leads_to_the_image(
    sandbox: UnpackedSandbox, spec: MakeSpec, image: UnpackedImage, tmp_path: Path
) -> None:
    (tmp_path / "secret").touch()
    (image.root / "link").symlink_to(tmp_path)
    try:
        end = ended(sandbox, spec(sandbox, "list_folder", "/link"))
    finally:
        (image.root / "link").unlink()
    assert end.code != 0
    assert "FileNotFoundError" in end.log_tail
