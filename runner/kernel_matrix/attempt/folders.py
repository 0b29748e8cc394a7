"""Folders, files and sockets that a session's or a builder's processes see; made new each time and removed after."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_matrix.attempt.contestants import CANDIDATE, PROBLEM_FILE, Contestant
from kernel_matrix.inside.judge.judge import REPORT_NAME, WAITING_NAME, numbered
from kernel_matrix.model.messages import JudgeJob, dumps
from kernel_matrix.plan import Cell
from kernel_matrix.sandboxes import RunningProcess
from kernel_matrix.sources import ModuleCode

JOB_FILE = "job.json"
ARTIFACT_NAME = "artifact.tar"  # name of the artifact inside the candidate's container

_POLL_S = 0.1


def judge_uid() -> int:
    """Return the judge's user, which is never root and never a contestant's."""
    return 65533 if os.geteuid() == 0 else os.getuid()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFolders:
    """Folders on the host of a judge, the baseline and rivals, and one candidate."""

    root: Path
    has_artifact: bool = False
    number: int = 0
    """Number of the candidate among those of this judge."""

    @property
    def judge(self) -> Path:
        """Job and problem; only the judge sees it."""
        return self.root / "judge"

    @property
    def channel(self) -> Path:
        """The judge's sockets, in a folder per contestant."""
        return self.root / "channel"

    def channel_to(self, contestant: str) -> Path:
        """Return the folder of the judge's socket for one contestant, which sees it read-only."""
        return self.channel / self._folder_of(contestant)

    @property
    def out(self) -> Path:
        """The judge's report; only the judge sees it."""
        return self.root / "out"

    def code(self, contestant: str) -> Path:
        """Return the folder with a copy of one contestant's source, which sees it read-only."""
        return self.root / "code" / self._folder_of(contestant)

    @property
    def artifact(self) -> Path:
        """The candidate's artifact; read-only to it."""
        return self.root / numbered("artifact", self.number)

    @property
    def report(self) -> Path:
        """The file that the judge writes its report to."""
        return self.out / numbered(REPORT_NAME, self.number)

    @property
    def waiting(self) -> Path:
        """The file that exists beside the report if the judge waits for another job."""
        return self.out / numbered(WAITING_NAME, self.number)

    def write_job(self, job: JudgeJob) -> None:
        """Write the job, with its secret, readable by the judge alone, which may already be waiting for it."""
        aside = self.judge / f"{JOB_FILE}.new"
        aside.write_text(dumps(job), encoding="utf-8")
        hand_over(aside, 0o400)
        aside.rename(self.judge / numbered(JOB_FILE, self.number))

    def _folder_of(self, contestant: str) -> str:
        return numbered(contestant, self.number) if contestant == CANDIDATE else contestant


@contextmanager
def judge_folders(scratch: Path, contestants: Sequence[Contestant]) -> Iterator[SessionFolders]:
    """Make new folders for a judge, the baseline and rivals, without sources, and remove them in any case.

    Raises:
        OSError: If the disk is full.
    """
    # Short names: a socket's path has room for 107 bytes, and a sandbox without namespaces shows folders as they are.
    with _new_root(scratch, "session-") as root:
        _make_folder(root / "code", 0o711)
        folders = SessionFolders(root=root)
        for folder, mode in ((folders.judge, 0o700), (folders.channel, 0o711), (folders.out, 0o700)):
            folder.mkdir()
            hand_over(folder, mode)
        for contestant in contestants:
            _make_folders_of(contestant, folders)
        yield folders


def stage_judge(folders: SessionFolders, cell: Cell, contestants: Sequence[Contestant]) -> None:
    """Put the problem of ``cell`` beside the job, and the sources of the baseline and rivals into their folders.

    Raises:
        OSError: If a source cannot be read, or the disk is full.
    """
    for path in _stage(cell.problem.code, folders.judge, PROBLEM_FILE):
        hand_over(path, 0o400)
    for contestant in contestants:
        _stage(contestant.code, folders.code(contestant.name), contestant.file)


@contextmanager
def candidate_folders(
    judge: SessionFolders, number: int, candidate: Contestant, *, has_artifact: bool
) -> Iterator[SessionFolders]:
    """Make the folders of a judge's candidate, without its source, and remove them in any case.

    Args:
        judge: The judge's folders.
        number: Number of the candidate; another one had no folders there.
        candidate: The candidate.
        has_artifact: Whether something is built of it ahead of time.

    Raises:
        OSError: If the disk is full.
    """
    folders = replace(judge, has_artifact=has_artifact, number=number)
    try:
        _make_folders_of(candidate, folders)
        folders.artifact.mkdir(mode=0o755)
        yield folders
    finally:
        for folder in (folders.channel_to(CANDIDATE), folders.code(CANDIDATE), folders.artifact):
            shutil.rmtree(folder, ignore_errors=True)


def stage_candidate(folders: SessionFolders, candidate: Contestant, artifact: Path | None) -> None:
    """Put the candidate's source into its folder, and what was built of it ahead of time.

    Raises:
        OSError: If its source cannot be read, or the disk is full.
    """
    _stage(candidate.code, folders.code(candidate.name), candidate.file)
    if artifact is not None:
        os.link(artifact, folders.artifact / ARTIFACT_NAME)


def _make_folders_of(contestant: Contestant, folders: SessionFolders) -> None:
    channel, code = folders.channel_to(contestant.name), folders.code(contestant.name)
    channel.mkdir()
    hand_over(channel, 0o711)
    code.mkdir(mode=0o755)


def _stage(code: ModuleCode, folder: Path, file: str) -> Sequence[Path]:
    """Write a module, as ``file``, and the files it needs beside it; return their paths."""
    written = []
    for name, content in {file: code.adapter.encode() or code.path, **code.extra_files}.items():
        target = folder / name
        _make_parents(target.parent, below=folder)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            shutil.copyfile(content, target)
        target.chmod(0o444)
        written.append(target)
    return written


def _make_parents(wanted: Path, *, below: Path) -> None:
    """Make ``wanted`` and all folders between it and ``below``, open to any user."""
    if wanted != below and not wanted.is_dir():
        _make_parents(wanted.parent, below=below)
        _make_folder(wanted, 0o755)


def hand_over(path: Path, mode: int) -> None:
    """Make ``path`` the judge's own, with these permissions."""
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, judge_uid(), judge_uid())


# ---- folders, files and sockets for a process of any user


@contextmanager
def folders_for_all(parent: Path, prefix: str, *names: str) -> Iterator[tuple[Path, ...]]:
    """Make folders with these names in a new folder below ``parent``, open to any user; remove them in any case."""
    with _new_root(parent, prefix) as root:
        folders = tuple(root / name for name in names)
        for folder in folders:
            make_for_all(folder)
        yield folders


def make_for_all(folder: Path) -> None:
    """Make ``folder``, open to any user."""
    _make_folder(folder, 0o755)


def write_for_all(files: Mapping[str, bytes], folder: Path) -> None:
    """Write ``files``, name → content, into ``folder``, readable by any user."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o444)


def accept(listener: socket.socket, running: RunningProcess, is_late: Callable[[], bool]) -> socket.socket | None:
    """Wait for a connection; return None once the process has ended or ``is_late()`` returns true."""
    listener.settimeout(_POLL_S)
    while True:
        # Read before ``accept``: a fast process may connect, send everything and exit before we listen.
        over = is_late() or running.wait(0) is not None
        with suppress(TimeoutError):
            return listener.accept()[0]
        if over:
            return None


@contextmanager
def _new_root(parent: Path, prefix: str) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        root.chmod(0o711)
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _make_folder(folder: Path, mode: int) -> None:
    """Make ``folder`` with exactly this mode, independent of the process's umask."""
    folder.mkdir()
    folder.chmod(mode)
