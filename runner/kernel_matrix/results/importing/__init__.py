"""Import of others' results into the tables of :mod:`kernel_matrix.results.schema`; missing values are null.

Each format is one module and one line in :data:`FORMATS`, or an entry point ``module:FORMAT`` of another package in the
group ``kernel_matrix.import_formats``. A file's format is recognised by its content. Unreadable files and single
unreadable results are listed with their line, and the import continues.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from kernel_matrix.errors import NothingSelectedError, UsageError
from kernel_matrix.plugins import Registry
from kernel_matrix.results.import_tables import build_tables, write
from kernel_matrix.results.importing.problem_names import join_spellings
from kernel_matrix.results.importing.stated_values import StatedValues, check_stated, complete
from kernel_matrix.sources import UnreadableItem, google_benchmark, nvbench, pairs
from kernel_matrix.sources.flashinfer import trace_results
from kernel_matrix.sources.json_files import BadValueError, JsonFile, shown_keys
from kernel_matrix.sources.kernelbench import eval_results, timing_results
from kernel_matrix.sources.kernelbenchx import metric_results
from kernel_matrix.sources.mapped.mapped_results import MAPPING, mapped_format
from kernel_matrix.sources.mapped.mapping_file import load_mapping
from kernel_matrix.sources.mapped.row_files import TABLE_ENDINGS, TableFile, open_results
from kernel_matrix.sources.measurement import ImportedFile, ImportFormat
from kernel_matrix.untrusted_json import escape_surrogates

AUTO: Final = "auto"
"""Name that stands for recognising the format by content."""
FORMATS: Registry[ImportFormat] = Registry(
    "import format",
    "kernel_matrix.import_formats",
    {
        one.name: one
        for one in (
            timing_results.FORMAT,
            pairs.FORMAT,
            eval_results.FORMAT,
            metric_results.GOLDEN,
            metric_results.METRICS,
            metric_results.SUMMARY,
            trace_results.FORMAT,
            nvbench.FORMAT,
            google_benchmark.FORMAT,
        )
    },
    members=[field.name for field in fields(ImportFormat)],
    name_member="name",
)
"""Name → format, in the order in which they are tried; the first that recognises a document reads it."""

_ENDINGS: Final = (".json", ".jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """Result of an import: the tables written, the files read, the items refused, and counts."""

    tables: Mapping[str, Path]
    """Table name → file."""
    files: tuple[ImportedFile, ...]
    """Files that were read, by path."""
    refused: tuple[UnreadableItem, ...]
    """Items that were not read: whole files and single results."""
    rows: int
    samples: int
    hosts: int
    gpus: int
    duplicates: int
    contested: int


def import_results(
    paths: Sequence[Path],
    out: Path,
    *,
    format_name: str = AUTO,
    name: str | None = None,
    gpu: str | None = None,
    toolchain: str | None = None,
    dtype: str | None = None,
    mapping: Path | None = None,
) -> ImportReport:
    """Read every file of ``paths`` and write the tables ``cells``, ``samples``, ``kernels`` and ``hosts`` to ``out``.

    The same files give the same bytes, independent of their order and location.

    Args:
        paths: Files, and folders whose ``.json`` and ``.jsonl`` files are read.
        out: Folder for the tables.
        format_name: A key of :data:`FORMATS`, or :data:`AUTO` to recognise each file's format by its content.
        name: Name of the matrix; by default the name of the format.
        gpu: GPU of results whose file does not say it; counts more than the name of a folder.
        toolchain: Toolchain of results whose file does not say it.
        dtype: The same for the dtype.
        mapping: File that says what the columns of all files mean, which may then be CSV, TSV and Parquet too.

    Raises:
        UsageError: A path does not exist, the format or dtype is unknown, or the mapping is invalid.
        NothingSelectedError: No result could be read; older tables in ``out`` stay.
        StoreError: The tables cannot be written.
    """
    chosen = _format(format_name, mapping)
    stated = check_stated(gpu=gpu, toolchain=toolchain, dtype=dtype)
    found: list[ImportedFile] = []
    refused: list[UnreadableItem] = []
    files = list(_files(paths, (*_ENDINGS, *TABLE_ENDINGS) if mapping else _ENDINGS))
    for path in files:
        try:
            one = _read(path, chosen, stated)
        except BadValueError as error:  # noqa: PERF203  # one bad file must not end the others
            refused.append(UnreadableItem(path=path, reason=str(error), line=error.line))
        else:
            found.append(one)
            refused += one.refused
    joined = _joined(join_spellings(found))
    made = build_tables(joined, name)
    if not made.frames["cells"].height:
        raise _nothing(paths, files, refused)
    cells = made.frames["cells"]
    return ImportReport(
        tables=write(made.frames, refused, out),
        files=tuple(sorted(joined, key=lambda one: one.path)),
        refused=tuple(refused),
        rows=cells.height,
        samples=made.frames["samples"].height,
        hosts=made.frames["hosts"].height,
        gpus=cells["gpu"].drop_nulls().n_unique(),
        duplicates=made.duplicates,
        contested=made.contested,
    )


def _format(name: str, mapping: Path | None) -> ImportFormat | None:
    if mapping is not None:
        if name != AUTO:
            raise UsageError("--format and --mapping exclude each other", next_step="Omit --format.")
        return mapped_format(load_mapping(mapping))
    if name == AUTO:
        return None
    if name not in FORMATS:
        raise UsageError(
            f"--format {name!r} is not a known format",
            next_step=f"Use one of {', '.join((AUTO, *FORMATS))}, or omit it.",
        )
    return FORMATS.load(name)


def _files(paths: Sequence[Path], endings: tuple[str, ...]) -> Iterator[Path]:
    """Yield each file once, by path; links to folders are not followed."""
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist", next_step="Name files, or folders of files, to import.")
        for file in _within(path, endings) if path.is_dir() else (path,):
            place = file.resolve()
            if place not in seen:
                seen.add(place)
                yield file


def _within(folder: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(place, name) for name in sorted(names) if name.endswith(endings))


def _read(path: Path, chosen: ImportFormat | None, stated: StatedValues) -> ImportedFile:
    file = open_results(path)
    if isinstance(file, TableFile) and not (chosen and chosen.name == MAPPING):
        raise BadValueError("is a table; say what its columns mean with --mapping FILE")
    form = chosen or _recognised(file)
    measured = tuple(form.read(file))
    read = ImportedFile(
        path=path,
        place=file.place,
        format=form.name,
        sha256=file.sha256,
        measured=measured,
        version=form.version(file),
        refused=tuple(file.refused()),
        notes=tuple(file.notes),
    )
    return complete(read, stated, folder_is_machine=form.folder_is_machine)


def _recognised(file: JsonFile) -> ImportFormat:
    document = file.first()
    for form in FORMATS.usable().values():
        if form.knows(document):
            return form
    if document is None and (broken := file.broken()):
        raise broken
    raise BadValueError(f"is in no known format: {shown_keys(document)}")


def _joined(found: Sequence[ImportedFile]) -> list[ImportedFile]:
    """Return the files grouped by format and joined as each format requires."""
    by_format: dict[str, list[ImportedFile]] = {}
    for one in found:
        by_format.setdefault(one.format, []).append(one)
    forms = FORMATS.usable()
    return [one for name, own in by_format.items() for one in (forms[name].join(own, found) if name in forms else own)]


def _nothing(paths: Sequence[Path], files: Sequence[Path], refused: Sequence[UnreadableItem]) -> NothingSelectedError:
    where = ", ".join(map(str, paths))
    if not files:
        what = f"no .json or .jsonl file in {where}"
    else:
        first = f"; {escape_surrogates(str(refused[0]))}" if refused else ""
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        what = f"none of {len(files)} files in {where} holds a result that can be read{first}{more}"
    known = "; ".join(f"{form.name} ({form.description})" for form in FORMATS.usable().values())
    return NothingSelectedError(what, next_step=f"Known are {known}. For any other file, --mapping says what it holds.")
