"""The line about unpacked images."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.environments.unpacked_images import FOLDER_VARIABLE, UnpackedImage, write_description
from kernel_matrix.hosts.doctor.unpacked import check
from kernel_matrix.inside import confine
from kernel_matrix.platforms.check_result import CheckVerdict
from kernel_matrix.sandboxes.process import Confinement
from tests.hosts.doctor.nouns import host

PRIVATE = Confinement(confine.ROOT, other_user=True)
REFUSED = Confinement(confine.NONE, other_user=False, refused=("namespaces could not be had: no",))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture
def image(folder: Path) -> UnpackedImage:
    made = UnpackedImage(
        id="sha256:1", names=("a/b:1",), manifest_digests=(), env={}, size_bytes=2_500_000_000, tree_sha256=""
    )
    made.root.mkdir(parents=True)
    write_description(made, made.folder)
    return made


@pytest.mark.usefixtures("image")
def test_images_that_can_run_are_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_matrix.sandboxes.process.ProcessSandbox.confinement", PRIVATE)
    (line,) = check(host())
    assert (line.verdict, line.found) == (CheckVerdict.OK, f"1 in {folder}, 2.5 GB")
    assert list(check(host(sandbox="docker"))) == []


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize(("sandbox", "verdict"), [("auto", CheckVerdict.WARN), ("unpacked", CheckVerdict.FAIL)])
def test_without_namespaces_they_cannot(sandbox: str, verdict: CheckVerdict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_matrix.sandboxes.process.ProcessSandbox.confinement", REFUSED)
    (line,) = check(host(sandbox=sandbox))
    assert line.verdict is verdict
    assert "need namespaces" in line.found


@pytest.mark.usefixtures("folder")
def test_where_none_is_unpacked_that_is_told_if_asked_for() -> None:
    assert list(check(host())) == []
    (line,) = check(host(sandbox="unpacked"))
    assert line.verdict is CheckVerdict.FAIL
    assert "images pull NAME --sandbox unpacked" in line.found
