"""The folders one session's processes see, made new for each and removed after."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.attempt.building import ARTIFACT_NAME, BuildResult
from kernel_matrix.attempt.contestants import PROBLEM_FILE, Contestant
from kernel_matrix.inside.judge.judge import REPORT_NAME
from kernel_matrix.model.messages import JudgeJob, dumps
from kernel_matrix.plan import Cell
from kernel_matrix.sources import ModuleCode

JOB_FILE = "job.json"


def judge_uid() -> int:
    """The judge's user: never root, never a contestant's."""
    return 65533 if os.geteuid() == 0 else os.getuid()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFolders:
    """One session's folders on the host."""

    root: Path
    has_artifact: bool

    @property
    def judge(self) -> Path:
        """Job and problem; only the judge sees it."""
        return self.root / "judge"

    @property
    def channel(self) -> Path:
        """The judge's sockets, in a folder per contestant."""
        return self.root / "channel"

    def channel_to(self, contestant: str) -> Path:
        """The judge's socket for one contestant, which sees it read-only."""
        return self.channel / contestant

    @property
    def out(self) -> Path:
        """The judge's report; only the judge sees it."""
        return self.root / "out"

    def code(self, contestant: str) -> Path:
        """A copy of one contestant's source; read-only to it."""
        return self.root / "code" / contestant

    @property
    def artifact(self) -> Path:
        """What the builder made of the candidate; read-only to it."""
        return self.root / "artifact"

    @property
    def report(self) -> Path:
        """Where the judge leaves its report."""
        return self.out / REPORT_NAME

    def write_job(self, job: JudgeJob) -> None:
        """Leave the job, with its secret, where only the judge reads it, which may be waiting for it already."""
        aside = self.judge / f"{JOB_FILE}.new"
        aside.write_text(dumps(job), encoding="utf-8")
        hand_over(aside, 0o400)
        aside.rename(self.judge / JOB_FILE)


@contextmanager
def session_folders(
    scratch: Path, cell: Cell, contestants: Sequence[Contestant], build: BuildResult | None
) -> Iterator[SessionFolders]:
    """New folders for one session of ``cell``; removed whatever happens.

    :raises OSError: when a source cannot be read, or the disk is full.
    """
    # Short names: a socket's path has room for 107 bytes, and an engine without namespaces shows folders as they are.
    root = Path(tempfile.mkdtemp(prefix="session-", dir=scratch))
    try:
        root.chmod(0o711)
        _make_passage(root / "code")
        artifact = build.artifact if build is not None else None
        folders = SessionFolders(root=root, has_artifact=artifact is not None)
        _make_judges_folders(folders, cell)
        for contestant in contestants:
            _make_contestants_folders(folders, contestant)
        folders.artifact.mkdir(mode=0o755)
        if artifact is not None:
            os.link(artifact, folders.artifact / ARTIFACT_NAME)
        yield folders
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _make_judges_folders(folders: SessionFolders, cell: Cell) -> None:
    for folder, mode in ((folders.judge, 0o700), (folders.channel, 0o711), (folders.out, 0o700)):
        folder.mkdir()
        hand_over(folder, mode)
    for path in _stage(cell.problem.code, folders.judge, PROBLEM_FILE):
        hand_over(path, 0o400)


def _make_contestants_folders(folders: SessionFolders, contestant: Contestant) -> None:
    channel, code = folders.channel_to(contestant.name), folders.code(contestant.name)
    channel.mkdir()
    hand_over(channel, 0o711)
    code.mkdir(mode=0o755)
    _stage(contestant.code, code, contestant.file)


def _make_passage(folder: Path) -> None:
    """A folder that any user may pass through, whatever this process lets others do by default."""
    folder.mkdir()
    folder.chmod(0o711)


def _stage(code: ModuleCode, folder: Path, file: str) -> Sequence[Path]:
    """Write a module, as ``file``, and what it needs beside it; where they are now."""
    written = []
    for name, content in {file: code.adapter.encode() or code.path, **code.beside}.items():
        target = folder / name
        _make_folders(target.parent, below=folder)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            shutil.copyfile(content, target)
        target.chmod(0o444)
        written.append(target)
    return written


def _make_folders(wanted: Path, *, below: Path) -> None:
    """``wanted`` and what lies between it and ``below``, for any user to pass through."""
    if wanted != below and not wanted.is_dir():
        _make_folders(wanted.parent, below=below)
        wanted.mkdir()
        wanted.chmod(0o755)


def hand_over(path: Path, mode: int) -> None:
    """Make ``path`` the judge's own, with these permissions."""
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, judge_uid(), judge_uid())
