from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from kernel_matrix.errors import ConfigError
from kernel_matrix.matrix import Matrix
from kernel_matrix.matrix.load import load_matrix

MINIMAL = """\
name = "m"
dtypes = ["fp32", "bf16"]

[[gpus]]
name = "cpu"
vendor = "cpu"

[[gpus]]
name = "h200"
model = "NVIDIA H200*"

[[toolchains]]
name = "cu128"
cuda = "12.8"
torch = "2.9.0"
triton = "3.5.0"
[[problems]]
source = "folder"
path = "problems"
"""

Load = Callable[..., Matrix]
Faults = Callable[..., list[str]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that loads a small valid matrix with the text of the test appended."""
    (tmp_path / "problems").mkdir()

    def load_text(added: str = "", *, base: str = MINIMAL) -> Matrix:
        path = tmp_path / "matrix.toml"
        path.write_bytes((base + dedent(added)).encode())
        return load_matrix(path)

    return load_text


@pytest.fixture
def faults(load: Load, tmp_path: Path) -> Faults:
    """Return a function that lists the faults of such a file, without the folder in front."""

    def faults_of(added: str = "", *, base: str = MINIMAL) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(added, base=base)
        assert all("\n" not in line for line in caught.value.problems)
        return [line.replace(f"{tmp_path}/", "") for line in caught.value.problems]

    return faults_of


@pytest.fixture
def minimal() -> str:
    return MINIMAL
