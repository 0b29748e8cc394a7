"""Pack a result folder into one file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.results.fingerprints import Salter
from kernel_matrix.results.packed_set import SetDescription, SetWriter
from kernel_matrix.results.reading import Document, RecordRefusedError, read_bytes, read_record, read_run
from kernel_matrix.results.record_files import find, read_runs
from kernel_matrix.results.store import serialise
from kernel_matrix.results.trace import TROUBLE_CHARS, pack, read_trace_document
from kernel_matrix.version import __version__

NOT_VALID: Final = "records and runs that are not valid"
NO_TRACE: Final = "traces that are missing or not valid"
NOT_ASKED_FOR: Final = "traces, which were not asked for"


def pack_folder(
    folder: Path, *, traces: bool = False, salt: bytes | None = None, extra: Mapping[str, bytes] | None = None
) -> tuple[SetDescription, bytes]:
    """Return the description and the bytes of a packed set.

    Args:
        folder: The result folder. What is no valid record, run or trace is left out, and counted.
        traces: Also pack the traces that records name.
        salt: Put salted hashes in place of what identifies machines; None to keep it.
        extra: Further files, by the name that a packed set has for them.

    Raises:
        UsageError: It is no result folder.
        NothingSelectedError: It has no valid record.
        StoreError: A file cannot be packed.
    """
    records, run_files = find([folder])
    runs, _ = read_runs(run_files)
    named = (name for run in runs.values() for name in (run["host"]["hostname"], *run.get("clocks_ahead_s", ())))
    packing = _Packing(root=folder.resolve(), salter=None if salt is None else Salter(salt, named))
    for name, data in sorted((extra or {}).items()):
        packing.writer.add(name, data)
    named_traces = packing.add_records(records)
    if not packing.counts["records"]:
        raise NothingSelectedError(f"{folder} has no valid record", next_step="`kernel-matrix merge` says why.")
    packing.add_runs(run_files)
    if traces:
        packing.add_traces(named_traces)
    else:
        packing.left_out[NOT_ASKED_FOR] = len(named_traces)
    description = packing.describe(matrices=tuple(sorted({run["matrix"] for run in runs.values()})))
    return description, packing.writer.finish(description)


@dataclass(slots=True, kw_only=True)
class _Packing:
    """A packed set while it is made."""

    root: Path
    salter: Salter | None
    writer: SetWriter = field(default_factory=SetWriter)
    counts: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    versions: set[str] = field(default_factory=set)
    problems: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add_records(self, files: Iterable[str]) -> list[Path]:
        """Add record files, and return the traces that they name."""
        traces = []
        for path, record in self._valid(self._in_order("records", files), read_record, NOT_VALID):
            self._add("records", path, record)
            self.versions.add(record["host"]["measurement_version"])
            self.problems[record["cell"]["problem"]].add(record["cell"]["problem_sha256"])
            telemetry = record["host"].get("telemetry")
            if telemetry is not None and telemetry["trace"] is not None:
                traces.append(path.parents[1] / "traces" / telemetry["trace"])
        return traces

    def add_runs(self, files: Iterable[str]) -> None:
        """Add the files of runs."""
        for path, run in self._valid(self._in_order("runs", files), read_run, NOT_VALID):
            self._add("runs", path, run)

    def add_traces(self, files: Iterable[Path]) -> None:
        """Add traces; the texts in them are what the driver said."""
        for path, trace in self._valid(files, read_trace_document, NO_TRACE):
            texts = trace["columns"]["trouble"]
            if self.salter is not None and (salted := self.salter.salted_texts(texts)) != texts:
                trace["columns"]["trouble"] = [text[:TROUBLE_CHARS] for text in salted]
                self._write("traces", path, pack(serialise("trace", trace)))
            else:
                self._write("traces", path, read_bytes(path))

    def describe(self, *, matrices: tuple[str, ...]) -> SetDescription:
        """Return the description of all that was added."""
        return SetDescription(
            kernel_matrix=__version__,
            salted=self.salter is not None,
            records=self.counts["records"],
            runs=self.counts["runs"],
            traces=self.counts["traces"],
            matrices=matrices,
            measurement_versions=tuple(sorted(self.versions)),
            problems={problem: tuple(sorted(digests)) for problem, digests in sorted(self.problems.items())},
            left_out={why: number for why, number in sorted(self.left_out.items()) if number},
            files=self.writer.files,
        )

    def _valid(
        self, files: Iterable[Path], read: Callable[[Path], Document], otherwise: str
    ) -> Iterator[tuple[Path, Document]]:
        """Yield each valid file with its content, and count the others."""
        for path in files:
            try:
                document = read(path)
            except RecordRefusedError:  # noqa: PERF203  # reading takes far longer
                self.left_out[otherwise] += 1
            else:
                yield path, document

    def _add(self, kind: str, path: Path, document: Document) -> None:
        if self.salter is None:
            data = read_bytes(path)
        else:
            data = serialise(kind.removesuffix("s"), self.salter.salted(document))
        self._write(kind, path, data)

    def _write(self, kind: str, path: Path, data: bytes) -> None:
        self.writer.add(self._name(kind, path), data)
        self.counts[kind] += 1

    def _in_order(self, kind: str, files: Iterable[str]) -> list[Path]:
        """Return the files in an order that does not depend on where the folder is."""
        return sorted(map(Path, files), key=lambda path: self._name(kind, path))

    def _name(self, kind: str, path: Path) -> str:
        """Return the name that a file has in the set."""
        place = path.parents[1]
        folder = "" if place == self.root or self.root.name == "records" else f"{place.name}/"
        return f"{folder}{kind}/{path.name}"
