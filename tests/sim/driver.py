"""What the Python sides of the simulated drivers share: compile one, script its world, run programs in it.

A vendor's driver is a subclass of :class:`DriverPrograms` that names its variable and its host's keys. What a world
can say, key by key, is told at the head of each driver's C file; the keys of several vendors have the same names where
they mean the same.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tests.warm_command import run_piped

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).resolve().parents[2]


def _section(sections: list[dict[str, Any]], uuid: str) -> dict[str, Any]:
    (gpu,) = (section for section in sections[1:] if section.get("uuid") == uuid)
    return gpu


def _is_listed(entry: str) -> bool:
    """Return True if the driver still lists this process; one with a star is listed only while it lives."""
    return not entry.endswith("*") or _lives(int(entry.rstrip("*").partition(":")[0]))


def _lives(pid: int) -> bool:
    """Return True if the process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def compile_library(folder: Path, source: Path, name: str, *options: str) -> Path:
    """The shared library ``name`` in ``folder``, made of ``source`` with further ``options`` of the compiler."""
    library = folder / name
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{library.name}", *options)
    subprocess.run(("gcc", *flags, "-o", library, source), check=True)
    return library


@dataclass(frozen=True)
class SetState:
    """Settings of one GPU that programs have made and not reset."""

    sm_locked: tuple[int, int] | None = None
    """Lowest and highest SM clock, MHz."""
    memory_locked: tuple[int, int] | None = None
    compute_mode: int | None = None
    """Null: as the world says."""
    perf_level: int | None = None
    """Null: as the world says."""

    @property
    def is_given_back(self) -> bool:
        """No clock is locked, and anybody may compute."""
        return self.sm_locked is None and self.memory_locked is None and not (self.compute_mode or self.perf_level)


class World:
    """Answers of the simulated driver, and settings made with it; several programs may change them at the same time."""

    VARIABLE: ClassVar[str]
    """Variable that names the world's file to the driver."""
    HOST: ClassVar[Mapping[str, Any]]
    """What the driver says about the host, unless told otherwise."""

    def __init__(self, path: Path) -> None:
        self._world = path

    @classmethod
    def here(cls) -> Self:
        """The world that this program lives in."""
        return cls(Path(os.environ[cls.VARIABLE]))

    def set(self, *gpus: dict[str, Any], **host: Any) -> None:
        """Make the world so, at once, also for programs that run already. What they have set stays set."""
        with self._alone():
            self._write([{**self.HOST, **host}, *gpus])

    def change(self, uuid: str, **keys: Any) -> None:
        """Change some answers of one GPU, at once; a key that becomes None is absent from then on."""
        with self._alone():
            sections = self._read()
            _section(sections, uuid).update(keys)
            self._write(sections)

    def occupy(self, uuid: str, pid: int) -> None:
        """Have a process compute on a GPU from now on; the driver lists it until it ends."""
        with self._alone():
            sections = self._read()
            gpu = _section(sections, uuid)
            gpu["compute"] = " ".join([*filter(_is_listed, gpu["compute"].split()), f"{pid}*"])
            self._write(sections)

    def tenants(self, uuid: str) -> list[int]:
        """Who computes on a GPU now, as the driver lists them."""
        listed = _section(self._read(), uuid)["compute"].split()
        return [int(entry.rstrip("*").partition(":")[0]) for entry in listed if _is_listed(entry)]

    def state(self, uuid: str) -> SetState:
        """What is set on a GPU now."""
        values: dict[str, Any] = {}
        for line in self._lines(".state"):
            owner, key, *numbers = line.split()
            if owner == uuid:
                values[key] = int(numbers[0]) if len(numbers) == 1 else tuple(map(int, numbers))
        return SetState(**values)

    def log(self) -> list[str]:
        """Every call that would set or reset anything, in order: ``pid function uuid arguments -> code``."""
        return self._lines(".log")

    def looks(self) -> int:
        """How often programs have asked for the list of computing processes."""
        path = self._world.with_name(self._world.name + ".looks")
        return path.stat().st_size if path.exists() else 0

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else changes the world meanwhile, in this program or another."""
        with self._world.with_suffix(".changing").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self) -> list[dict[str, Any]]:
        """The host's keys, then each GPU's."""
        sections: list[dict[str, Any]] = [{}]
        for line in self._world.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "gpu":
                sections.append({})
            else:
                sections[-1][key] = value
        return sections

    def _write(self, sections: list[dict[str, Any]]) -> None:
        texts = ["".join(f"{key} {value}\n" for key, value in part.items() if value is not None) for part in sections]
        aside = self._world.with_suffix(".new")
        aside.write_text("gpu\n".join(texts))
        aside.replace(self._world)

    def _lines(self, suffix: str) -> list[str]:
        path = self._world.with_name(self._world.name + suffix)
        return path.read_text().splitlines() if path.exists() else []


class DriverPrograms(World):
    """One world, and programs that live in it."""

    def __init__(self, library: Path, world: Path) -> None:
        super().__init__(world)
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": f"{library.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            self.VARIABLE: str(world),
            # What the person who runs the tests has forbidden on this machine must not decide what the tests see.
            "KERNEL_MATRIX_GPU_SETTINGS": "allow",
            "KERNEL_MATRIX_HOST_FILE": str(world.with_name("host.toml")),
        }

    def start(
        self, program: str, *arguments: str, prefix: Sequence[str] = (), **environment: str
    ) -> subprocess.Popen[str]:
        """Start Python on ``program``, with pipes.

        :param prefix: command that starts Python in its turn.
        """
        return subprocess.Popen(
            (*prefix, sys.executable, "-c", program, *arguments),
            env={**self.environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, program: str, *, timeout_s: float = 60, **environment: str) -> Any:
        """Run ``program`` to its end in a process that is forked; the last line that it printed, read as JSON."""
        places = {**self.environment, **environment}
        done = run_piped((), Path.cwd(), places, program=("-c", program), limit_s=timeout_s)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])
