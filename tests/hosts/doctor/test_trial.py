"""The trial: a reference in the sandbox that would run cells."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from kernel_matrix.hosts.doctor.trial import check
from kernel_matrix.platforms.check_result import CheckVerdict
from tests.hosts.doctor.nouns import host
from tests.own_python import ROOT

MISSING = "libcudart.so.12: cannot open shared object file"


@pytest.fixture
def torchless(tmp_path: Path) -> Path:
    """A Python whose torch is installed and cannot be imported, as where a driver's library is missing."""
    venv.create(tmp_path / "venv", with_pip=False)
    packages = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    for name, text in {
        "torch/__init__.py": f"raise OSError({MISSING!r})\n",
        "torch-2.13.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n",
        "torch-2.13.0.dist-info/RECORD": "torch/__init__.py,sha256=abc,1\n",
        "zz.pth": f"{ROOT / 'runner'}\n{sysconfig.get_path('purelib')}\n",
    }.items():
        (packages / name).parent.mkdir(exist_ok=True)
        (packages / name).write_text(text)
    return tmp_path / "venv" / "bin" / "python"


@pytest.mark.torch
def test_sandbox_that_runs_a_reference_is_ok() -> None:
    (found,) = check(host(sandbox="process", trial=True))
    assert (found.verdict, found.subject) == (CheckVerdict.OK, "trial")
    assert "sandbox process imports torch and runs a reference" in found.found


def test_nothing_is_tried_unless_it_is_asked_for() -> None:
    assert list(check(host(sandbox="process"))) == []


@pytest.mark.torch
def test_torch_that_cannot_be_imported_is_found(torchless: Path, tmp_path: Path) -> None:
    command = (str(torchless), "-m", "kernel_matrix", "doctor", "--sandbox", "process", "--json")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 4
    assert found["trial"]["verdict"] == "fail"
    assert MISSING in found["trial"]["found"]


@pytest.mark.torch
def test_torch_that_cannot_be_imported_blames_no_candidate(torchless: Path, tmp_path: Path) -> None:
    candidate = tmp_path / "mine.py"
    candidate.write_text((ROOT / "problems" / "relu" / "candidates" / "torch_clamp.py").read_text())
    command = (str(torchless), "-m", "kernel_matrix", "try", "mine.py", "--problem", "relu", "--json")
    environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "PATH": str(Path(sys.executable).parent)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert (done.returncode, told["fault"]) == (4, "infra")
    assert MISSING in told["message"]
