"""The image folders and the lock of this project."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.images import LockState
from kernel_matrix.images.lock import load_lock
from kernel_matrix.images.lock_check import folder_complaints
from kernel_matrix.images.recipe import read_recipe
from kernel_matrix.images.wheels import read_requirements

IMAGES = Path(__file__).parents[2] / "images"
LOCK = load_lock(IMAGES / "images.lock")


def test_every_toolchain_has_a_folder_and_an_entry() -> None:
    shipped = {"cpu", "cu124", "cu128", "cu130", "rocm72"}
    assert set(LOCK) == {path.parent.name for path in IMAGES.glob("*/Dockerfile")} == shipped


@pytest.mark.parametrize("toolchain", LOCK)
def test_the_folder_is_what_was_locked(toolchain: str) -> None:
    assert folder_complaints(LOCK[toolchain], IMAGES) == ()


@pytest.mark.parametrize("toolchain", LOCK)
def test_every_package_is_locked_by_hash(toolchain: str) -> None:
    assert read_requirements(IMAGES / toolchain / "requirements.lock")


def test_the_cpu_image_needs_no_registry() -> None:
    assert read_recipe(IMAGES, "cpu").debian is not None
    assert LOCK["cpu"].state is LockState.LOCAL


def test_the_lock_says_which_packages_the_cpu_image_holds() -> None:
    locked = read_requirements(IMAGES / "cpu" / "requirements.lock")
    held = {f"{name.removeprefix('py:')}=={version}" for name, version in LOCK["cpu"].packages.items()}
    assert {name.replace("_", "-") for name in locked} <= {name.replace("_", "-") for name in held}


@pytest.mark.parametrize("toolchain", LOCK)
def test_contraction_of_multiply_and_add_is_set_explicitly(toolchain: str) -> None:
    assert "TRITON_DEFAULT_FP_FUSION=1" in (IMAGES / toolchain / "Dockerfile").read_text()
