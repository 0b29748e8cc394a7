"""The oldest Pythons: 3.10 for the host side, 3.9 for what runs inside images."""

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

import kernel_matrix
from kernel_matrix.platforms.registry import PLATFORMS
from kernel_matrix.sandboxes.role_environment import INSIDE_PACKAGES

PACKAGE = Path(kernel_matrix.__file__).parent
FOLDERS = (*INSIDE_PACKAGES, *(f"platforms/{name}/inside" for name in PLATFORMS.built_in))
INSIDE = sorted(path for name in FOLDERS for path in (PACKAGE / name).rglob("*.py"))
HOST = sorted(set(PACKAGE.rglob("*.py")) - set(INSIDE))


def name(path):
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", INSIDE, ids=name)
def test_what_runs_inside_has_the_syntax_of_python_3_9(path):
    ast.parse(path.read_text(), feature_version=(3, 9))


@pytest.mark.parametrize("path", HOST, ids=name)
def test_the_host_side_has_the_syntax_of_python_3_10(path):
    ast.parse(path.read_text(), feature_version=(3, 10))


def python_3_9():
    installed = sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python"))
    for python in filter(None, (shutil.which("python3.9"), *installed)):
        # pyenv puts a stand-in on the path also for versions that it does not start.
        if subprocess.run((python, "-c", ""), check=False, capture_output=True).returncode == 0:
            return python
    return None


def test_what_runs_inside_compiles_and_starts_on_python_3_9(tmp_path):
    python = python_3_9()
    if python is None:
        pytest.skip("no Python 3.9 on this machine; the syntax was checked by its grammar alone")
    copy = tmp_path / "kernel_matrix"
    for folder in FOLDERS:
        shutil.copytree(PACKAGE / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run((python, "-m", "compileall", "-q", copy), check=True)
    program = "import kernel_matrix.model.messages as m; print(m.dumps(m.ProtocolSpec()))"
    subprocess.run((python, "-c", program), cwd=tmp_path, check=True)
    probe = ("-m", "kernel_matrix.inside.probe", "health", "--device", "cpu", "--out", tmp_path)
    subprocess.run((python, *probe), cwd=tmp_path, check=True)
