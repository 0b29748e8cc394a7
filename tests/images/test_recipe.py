from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.errors import ImageError
from kernel_matrix.images.recipe import DebianBase, read_recipe

PINNED = "FROM debian:12@sha256:" + "0" * 64 + "\n"


def write(folder: Path, *, dockerfile: str = PINNED, toml: str = 'python = "3.11"\n') -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Dockerfile").write_text(dockerfile)
    (folder / "requirements.lock").write_text("")
    (folder / "image.toml").write_text(toml)


def test_a_registry_base(tmp_path: Path) -> None:
    write(tmp_path / "cu1")
    recipe = read_recipe(tmp_path, "cu1")
    assert (recipe.debian, recipe.python) == (None, "3.11")
    assert recipe.base == PINNED.split()[1]


def test_a_debootstrap_base(tmp_path: Path) -> None:
    toml = 'python = "3.11"\n[debootstrap]\nsuite = "bookworm"\ninclude = ["python3"]\n'
    write(tmp_path / "cpu", dockerfile="ARG BASE\nFROM ${BASE}\n", toml=toml)
    assert read_recipe(tmp_path, "cpu").debian == DebianBase(suite="bookworm", variant="minbase", include=("python3",))


@pytest.mark.parametrize("name", ["Dockerfile", "requirements.lock", "image.toml"])
def test_every_input_changes_the_digest_and_must_be_there(tmp_path: Path, name: str) -> None:
    write(tmp_path / "t")
    before = read_recipe(tmp_path, "t").inputs_sha256
    path = tmp_path / "t" / name
    path.write_text(path.read_text() + "# more\n")
    assert read_recipe(tmp_path, "t").inputs_sha256 != before
    path.unlink()
    with pytest.raises(ImageError, match=f"lacks {name}"):
        read_recipe(tmp_path, "t")


def test_other_files_do_not_change_the_digest(tmp_path: Path) -> None:
    write(tmp_path / "t")
    before = read_recipe(tmp_path, "t").inputs_sha256
    (tmp_path / "t" / "notes.txt").write_text("x")
    assert read_recipe(tmp_path, "t").inputs_sha256 == before


def test_an_unknown_toolchain_names_those_there_are(tmp_path: Path) -> None:
    write(tmp_path / "cpu")
    with pytest.raises(ImageError) as caught:
        read_recipe(tmp_path, "cpx")
    assert "holds cpu" in caught.value.next_step


@pytest.mark.parametrize(
    ("dockerfile", "toml", "expected"),
    [
        ("FROM debian:12\n", 'python = "3.11"\n', "not named by digest"),
        ("RUN true\n", 'python = "3.11"\n', "not named by digest"),
        (PINNED, 'python = "3.11"\n[debootstrap]\nsuite = "bookworm"\n', r"must be \$\{BASE\}"),
        (PINNED, 'python = "3.11"\n[debootstrap]\nsuite = "--help"\n', "needs suite"),
        (PINNED, 'python = "3.11"\n[debootstrap]\n', "needs suite"),
        (PINNED, 'python = "3.11"\n[debootstrap]\nsuite = "a"\ninclude = "python3"\n', "needs suite"),
        (PINNED, 'python = "3.11"\ndebootstrap = 1\n', "must be a table"),
        (PINNED, 'python = "3.11"\n[debootstrap]\nsuite = "a"\nmirror = "x"\n', "unknown key debootstrap.mirror"),
        (PINNED, "python = 3.11\n", "must be a version"),
        (PINNED, "", "must be a version"),
        (PINNED, 'python = "3.11"\nbase = "x"\n', "unknown key base"),
        (PINNED, "python =\n", "cannot be read"),
    ],
)
def test_what_may_not_be(tmp_path: Path, dockerfile: str, toml: str, expected: str) -> None:
    write(tmp_path / "t", dockerfile=dockerfile, toml=toml)
    with pytest.raises(ImageError, match=expected) as caught:
        read_recipe(tmp_path, "t")
    assert caught.value.next_step
