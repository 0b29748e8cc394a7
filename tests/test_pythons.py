"""The oldest Pythons: 3.10 for the host side, 3.9 for what runs inside images."""

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

import runner

PACKAGE = Path(runner.__file__).parent
CORE = sorted((PACKAGE / "core").rglob("*.py"))
HOST = sorted(set(PACKAGE.rglob("*.py")) - set(CORE))


def name(path):
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", CORE, ids=name)
def test_the_core_has_the_syntax_of_python_3_9(path):
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


def test_the_core_compiles_and_what_needs_no_torch_runs_on_a_real_python_3_9(tmp_path):
    python = python_3_9()
    if python is None:
        pytest.skip("no Python 3.9 on this machine; the syntax was checked by its grammar alone")
    copy = shutil.copytree(PACKAGE, tmp_path / "runner", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run((python, "-m", "compileall", "-q", copy / "core"), check=True)
    program = "import runner.core.messages as m; print(m.dumps(m.ProtocolSpec()))"
    subprocess.run((python, "-c", program), cwd=tmp_path, check=True)
    probe = ("-m", "runner.core.probe", "health", "--device", "cpu", "--out", tmp_path)
    subprocess.run((python, *probe), cwd=tmp_path, check=True)
