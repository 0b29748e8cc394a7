"""Find a Python environment by its path, and describe it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_matrix.environments import AUTO, PythonEnvironment, changes, toolkits
from kernel_matrix.errors import PythonEnvironmentError
from kernel_matrix.file_hash import content_digest, file_sha256
from kernel_matrix.inside import environment_description
from kernel_matrix.platforms.registry import platforms

OLDEST_PYTHON = (3, 9)
"""Version of Python that the inside half of this package needs."""
_PATIENCE_S = 120.0
"""Limit for a description, which takes a second on a local disk and longer on a network file system."""
_ADVICE = 'name a virtual environment, a conda prefix or an interpreter that has PyTorch, or write "auto"'


def read_environment(where: str) -> PythonEnvironment:
    """Describe the environment at ``where``, or the one of this program for :data:`~kernel_matrix.environments.AUTO`.

    Args:
        where: ``auto``, or the absolute path of a virtual environment, a conda prefix or an interpreter.

    Raises:
        PythonEnvironmentError: There is none, its Python does not start or is too old, or PyTorch is missing.
    """
    interpreter = _interpreter(where)
    found = _describe(interpreter)
    _check(found, interpreter)
    conda = {f"conda:{name}": version for name, version in map(_split_conda, found["conda_packages"])}
    programs = _programs(toolkits(found["torch_builds"]))
    return PythonEnvironment(
        prefix=found["prefix"],
        executable=found["executable"],
        python=found["python"],
        folders=tuple(found["folders"]),
        distributions=dict(sorted({**found["distributions"], **conda}.items())),
        torch_builds=toolkits(found["torch_builds"]),
        programs=programs,
        digest=_digest(found, programs),
        stamps=found["stamps"],
    )


def check_unchanged(environment: PythonEnvironment) -> None:
    """Check that the environment still has the content that it was described with.

    Nothing is read where no file was touched; a description takes 0.3 s, and this is called after each cell.

    Raises:
        PythonEnvironmentError: It was changed, or cannot be used any more.
    """
    stamps = environment.stamps
    untouched = bool(stamps) and environment_description.stamps_of(stamps) == stamps
    if untouched and _programs(environment.torch_builds) == environment.programs:
        return
    now = read_environment(environment.executable)
    if now.digest != environment.digest:
        what = changes(environment.distributions, environment.programs, now)
        raise PythonEnvironmentError(
            f"environment {environment.prefix} was changed while cells ran in it: {what}",
            next_step="run again, and leave the environment alone meanwhile",
        )


def _interpreter(where: str) -> Path:
    if where == AUTO:
        return Path(sys.executable)
    path = Path(where)
    found = path if path.is_file() else path / "bin" / "python"
    if not found.is_file():
        raise PythonEnvironmentError(f"{where} has no Python: {found} does not exist", next_step=_ADVICE)
    return found


def _describe(interpreter: Path) -> dict[str, Any]:
    """Run the description with ``interpreter``, without what the user's settings would add."""
    command = (str(interpreter), "-I", "-B", environment_description.__file__)
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=True)
        found: dict[str, Any] = {**json.loads(done.stdout), "interpreter_sha256": file_sha256(interpreter)}
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise PythonEnvironmentError(f"{interpreter} could not be described: {last}", next_step=_ADVICE) from error
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise PythonEnvironmentError(f"{interpreter} is no Python that runs: {error}", next_step=_ADVICE) from error
    return found


def _check(found: Mapping[str, Any], interpreter: Path) -> None:
    version = tuple(map(int, found["python"].rpartition(" ")[2].split(".")[:2]))
    if version < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        what = f"{interpreter} is {found['python']}; cells need Python {wanted} or newer"
        raise PythonEnvironmentError(what, next_step="make an environment with a newer Python")
    if "torch" not in found["distributions"]:
        raise PythonEnvironmentError(
            f"the environment of {interpreter} has no PyTorch",
            next_step=f"`{interpreter} -m pip install torch`, or name another environment",
        )


def _split_conda(name: str) -> tuple[str, str]:
    """Split ``<name>-<version>-<build>``, the name of a package's file in ``conda-meta``."""
    package, _, rest = name.rpartition("-")
    package, _, version = package.rpartition("-")
    return (package, f"{version}-{rest}") if package else (name, "")


def _programs(torch_builds: Mapping[str, str]) -> dict[str, str]:
    """Return compilers and drivers of this host for the platforms that PyTorch was built for."""
    found: dict[str, str] = {}
    for name, platform in platforms().items():
        if name in torch_builds:
            found[f"{name} compiler"] = platform.local_compiler()
            drivers = {gpu.driver for gpu in platform.inventory().gpus if gpu.driver}
            found[f"{name} driver"] = ", ".join(sorted(drivers))
    return {name: value for name, value in found.items() if value}


def _digest(found: Mapping[str, Any], programs: Mapping[str, str]) -> str:
    content = {
        **{name: found[name] for name in ("python", "interpreter_sha256", "distributions", "files_sha256")},
        **{name: found[name] for name in ("conda_packages", "torch_builds")},
        "programs": programs,
    }
    return content_digest(json.dumps(content, sort_keys=True).encode())
