from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny_images import make_wheel

from kernel_matrix.errors import ImageError
from kernel_matrix.images.wheels import fetch_wheels, link_wheels, read_requirements


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder of wheels that is pip's only index."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def lock(tmp_path: Path, sha256: str) -> Path:
    path = tmp_path / "requirements.lock"
    path.write_text(f"# a comment\ntiny==1.0 \\\n    --hash=sha256:{sha256}\n")
    return path


def test_a_wheel_is_fetched_once_and_then_needs_no_index(index: Path, tmp_path: Path) -> None:
    wheel, sha256 = make_wheel(index)
    requirements, cache = lock(tmp_path, sha256), tmp_path / "cache"
    (fetched,) = fetch_wheels(requirements, "3.11", cache)
    assert (fetched.parent, fetched.read_bytes()) == (cache, wheel.read_bytes())
    wheel.unlink()
    assert fetch_wheels(requirements, "3.11", cache) == (fetched,)


def test_a_wheel_with_another_hash_is_refused(index: Path, tmp_path: Path) -> None:
    make_wheel(index)
    with pytest.raises(ImageError, match="could not fetch") as caught:
        fetch_wheels(lock(tmp_path, "0" * 64), "3.11", tmp_path / "cache")
    assert "PIP_EXTRA_INDEX_URL" in caught.value.next_step


def test_a_spoiled_cache_is_not_used(index: Path, tmp_path: Path) -> None:
    wheel, sha256 = make_wheel(index)
    (fetched,) = fetch_wheels(lock(tmp_path, sha256), "3.11", tmp_path / "cache")
    fetched.write_bytes(b"spoiled")
    (again,) = fetch_wheels(lock(tmp_path, sha256), "3.11", tmp_path / "cache")
    assert again.read_bytes() == wheel.read_bytes()


def test_wheels_are_placed_with_their_content(tmp_path: Path) -> None:
    wheel, _ = make_wheel(tmp_path / "a")
    link_wheels((wheel,), tmp_path / "context")
    assert (tmp_path / "context" / wheel.name).read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize(
    "line", ["torch", "torch==2.13.0", "torch>=2 --hash=sha256:" + "0" * 64, "--index-url http://x"]
)
def test_a_line_without_a_hash_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "r").write_text(line + "\n")
    with pytest.raises(ImageError, match="not locked by hash"):
        read_requirements(tmp_path / "r")


def test_one_requirement_may_have_several_hashes(tmp_path: Path) -> None:
    (tmp_path / "r").write_text(
        f"a==1+cpu \\\n  --hash=sha256:{'1' * 64} \\\n  --hash=sha256:{'2' * 64}\n\nb==2 --hash=sha256:{'3' * 64}\n"
    )
    assert read_requirements(tmp_path / "r") == {"a==1+cpu": {"1" * 64, "2" * 64}, "b==2": {"3" * 64}}
