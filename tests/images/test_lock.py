from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.errors import ImageError
from kernel_matrix.images import LockEntry, LockState
from kernel_matrix.images.lock import load_lock, save_lock

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64

LOCAL = LockEntry(
    toolchain="cpu",
    reference="kernel-matrix/cpu:bbbbbbbbbbbb",
    state=LockState.LOCAL,
    digest=DIGEST,
    config_digest=OTHER,
    inputs_sha256="c" * 64,
    built_on="0123456789abcdef",
    packages={"deb:bash": "5.2", "py:torch": "2.13.0+cpu"},
    source="debootstrap bookworm",
)
DECLARED = LockEntry(
    toolchain="cu128",
    reference=f"pytorch/pytorch:2.9.0@{DIGEST}",
    state=LockState.DECLARED,
    digest=DIGEST,
    config_digest=None,
    source="public code",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "images.lock"


def test_what_is_saved_is_loaded(path: Path) -> None:
    save_lock(path, {"cu128": DECLARED, "cpu": LOCAL})
    assert load_lock(path) == {"cpu": LOCAL, "cu128": DECLARED}
    assert list(load_lock(path)) == ["cpu", "cu128"]


def test_the_order_of_entries_does_not_change_the_file(path: Path) -> None:
    save_lock(path, {"cu128": DECLARED, "cpu": LOCAL})
    first = path.read_bytes()
    save_lock(path, {"cpu": LOCAL, "cu128": DECLARED})
    assert path.read_bytes() == first


def test_one_package_is_one_line_of_a_diff(path: Path) -> None:
    save_lock(path, {"cpu": LOCAL})
    before = path.read_text().splitlines()
    save_lock(path, {"cpu": replace(LOCAL, packages={**LOCAL.packages, "deb:bash": "5.3"})})
    after = path.read_text().splitlines()
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_a_lock_that_is_not_there_holds_nothing(path: Path) -> None:
    assert load_lock(path) == {}


def test_a_lock_that_cannot_be_written_leaves_the_old_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_lock(path, {"cpu": LOCAL})

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ImageError, match="No space left"):
        save_lock(path, {})
    assert load_lock(path) == {"cpu": LOCAL}
    assert [file.name for file in path.parent.iterdir()] == ["images.lock"]


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", '{"schema": 2, "images": {}}', '{"schema": 1, "images": []}', "\xff"]
)
def test_what_is_no_lock_is_refused(path: Path, text: str) -> None:
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ImageError, match=r"images\.lock") as caught:
        load_lock(path)
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"state": "sure"}, "must be one of locked, declared, local"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"toolchain": "cpu"}, "unknown key 'toolchain'"),
        ({"digest": "sha256:short"}, "64 hex digits"),
        ({"config_digest": 7}, "64 hex digits"),
        ({"packages": ["torch"]}, "map names to versions"),
        ({"packages": {"torch": 2}}, "map names to versions"),
        ({"source": None}, "source must be text"),
        ({"reference": None}, "reference must be text"),
        ({"reference": "pytorch/pytorch:2.9.0"}, "must end in @ and its digest"),
        ({"digest": None}, "must end in @ and its digest"),
        ({"state": "local", "digest": None}, "needs its digest"),
    ],
)
def test_an_entry_that_is_wrong_is_named(path: Path, change: dict[str, object], expected: str) -> None:
    save_lock(path, {"cu128": DECLARED})
    document = json.loads(path.read_text())
    document["images"]["cu128"] |= change
    path.write_text(json.dumps(document))
    with pytest.raises(ImageError, match=r"images\.cu128: ") as caught:
        load_lock(path)
    assert expected in str(caught.value)


@pytest.mark.parametrize("key", ["reference", "state", "digest", "config_digest"])
def test_an_entry_that_lacks_a_key_is_named(path: Path, key: str) -> None:
    save_lock(path, {"cpu": LOCAL})
    document = json.loads(path.read_text())
    del document["images"]["cpu"][key]
    path.write_text(json.dumps(document))
    with pytest.raises(ImageError, match=f"'{key}' is missing"):
        load_lock(path)
