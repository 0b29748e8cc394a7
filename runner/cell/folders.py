"""The folders one session's processes see, made new for each and removed after."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runner.cell.building import ARTIFACT_NAME, Build
from runner.core.judge import REPORT_NAME
from runner.core.messages import JudgeJob, dumps
from runner.plan import Cell

PROBLEM_FILE = "problem.py"
CANDIDATE_FILE = "candidate.py"


def judge_uid() -> int:
    """The judge's user: never root, never the candidate's."""
    return 65533 if os.geteuid() == 0 else os.getuid()


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFolders:
    """One session's folders on the host."""

    root: Path
    has_artifact: bool

    @property
    def judge(self) -> Path:
        """Job and problem; only the judge sees it."""
        return self.root / "judge"

    @property
    def channel(self) -> Path:
        """The judge's socket; the candidate sees it read-only."""
        return self.root / "channel"

    @property
    def out(self) -> Path:
        """The judge's report; only the judge sees it."""
        return self.root / "out"

    @property
    def code(self) -> Path:
        """A copy of the candidate's source; read-only to it."""
        return self.root / "code"

    @property
    def artifact(self) -> Path:
        """What the builder made of it; read-only to the candidate."""
        return self.root / "artifact"

    @property
    def report(self) -> Path:
        """Where the judge leaves its report."""
        return self.out / REPORT_NAME

    def write_job(self, job: JudgeJob) -> None:
        """Write the job, with its secret, where only the judge reads it."""
        path = self.judge / "job.json"
        path.write_text(dumps(job), encoding="utf-8")
        hand_over(path, 0o400)


@contextmanager
def session_folders(scratch: Path, cell: Cell, build: Build | None) -> Iterator[CellFolders]:
    """New folders for one session of ``cell``; removed whatever happens."""
    root = Path(tempfile.mkdtemp(prefix=f"cell-{cell.id[:12]}-", dir=scratch))
    try:
        root.chmod(0o711)
        artifact = build.artifact if build is not None else None
        folders = CellFolders(root=root, has_artifact=artifact is not None)
        for folder, mode in ((folders.judge, 0o700), (folders.channel, 0o711), (folders.out, 0o700)):
            folder.mkdir()
            hand_over(folder, mode)
        _stage(cell.problem.path, folders.judge / PROBLEM_FILE)
        hand_over(folders.judge / PROBLEM_FILE, 0o400)
        folders.code.mkdir(mode=0o755)
        _stage(cell.candidate.path, folders.code / CANDIDATE_FILE)
        folders.artifact.mkdir(mode=0o755)
        if artifact is not None:
            os.link(artifact, folders.artifact / ARTIFACT_NAME)
        yield folders
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _stage(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o444)


def hand_over(path: Path, mode: int) -> None:
    """Make ``path`` the judge's own, with these permissions."""
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, judge_uid(), judge_uid())
