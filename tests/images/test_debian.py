from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kernel_matrix.errors import ImageError
from kernel_matrix.images.debian import MIRROR_VARIABLE, bootstrap, check_debootstrap, host_mirror
from kernel_matrix.images.recipe import DebianBase


def fake(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_the_mirror_is_that_of_this_hosts_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MIRROR_VARIABLE, raising=False)
    lines = (
        "bookworm-updates main http://updates/",
        "bookworm contrib http://c/",
        "bookworm main http://mirror/debian/",
    )
    fake(tmp_path / "bin", "apt-get", "\n".join(f"echo '{line}'" for line in lines))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert host_mirror("bookworm") == "http://mirror/debian/"
    assert host_mirror("trixie") is None


def test_a_named_mirror_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MIRROR_VARIABLE, "http://named/")
    assert host_mirror("bookworm") == "http://named/"


def test_without_apt_the_mirror_is_debootstraps_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MIRROR_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host_mirror("bookworm") is None


def test_a_host_without_debootstrap_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="debootstrap, unshare, tar is not installed") as caught:
        check_debootstrap()
    assert "--sandbox process" in caught.value.next_step


def test_a_user_who_is_not_root_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("debootstrap", "unshare", "tar"):
        fake(tmp_path / "bin", name, "true")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ImageError, match="needs root"):
        check_debootstrap()


def test_a_failing_debootstrap_shows_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MIRROR_VARIABLE, "http://mirror/")
    fake(tmp_path / "bin", "unshare", 'echo "asked: $*"; echo "E: no such mirror" >&2; exit 3')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    debian = DebianBase(suite="bookworm", variant="minbase", include=("python3",))
    with pytest.raises(ImageError, match="E: no such mirror") as caught:
        bootstrap(debian, tmp_path, tmp_path / "debs")
    assert "exit code 3" in caught.value.what
    for word in ("--variant=minbase", "--include=python3", f"bookworm {tmp_path / 'root'} http://mirror/"):
        assert word in caught.value.what


@pytest.mark.docker  # where images can be built, debootstrap is there
@pytest.mark.skipif(shutil.which("debootstrap") is None or os.geteuid() != 0, reason="needs debootstrap and root")
def test_a_mirror_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MIRROR_VARIABLE, "http://127.0.0.1:9/debian")
    debian = DebianBase(suite="bookworm", variant="minbase", include=())
    with pytest.raises(ImageError, match="failed with exit code"):
        bootstrap(debian, tmp_path, tmp_path / "debs")
