"""Load ``matrix.toml`` as a :class:`~kernel_matrix.matrix.Matrix`, or report all of its faults at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kernel_matrix.environments import AUTO
from kernel_matrix.errors import MatrixError
from kernel_matrix.matrix import (
    CandidateSet,
    Exclude,
    GpuAxis,
    Include,
    Match,
    Matrix,
    Override,
    Policy,
    ProblemSet,
    Protocol,
    Toolchain,
)
from kernel_matrix.matrix.complaints import MatrixFault
from kernel_matrix.matrix.globs import one_or_many
from kernel_matrix.matrix.rule_checks import check_rules
from kernel_matrix.matrix.semantics import check_semantics, platform_of, resolve
from kernel_matrix.matrix.shape import check_shape, remove_faulty
from kernel_matrix.matrix.tiers import read_policy, read_protocol, with_policy, with_protocol
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.toml_text import Position, TomlSyntaxError, find, nearest, parse_toml, scan, show

STANDARD_INPUT = "-"
"""Name of a matrix file that is standard input."""
_NEXT_STEP = "kernel-matrix docs matrix lists every key"


def load_matrix(path: Path) -> Matrix:
    """Read and check a matrix file; ``-`` is standard input, whose relative paths start from the working directory.

    Raises:
        kernel_matrix.errors.MatrixError: with one line per fault, ``file:line:column key: fault; allowed values``.
    """
    text = _read(path)
    document = _parse(path, text)
    root = path.resolve().parent
    try:
        faults = _find_faults(document, root)
        if faults:
            raise MatrixError(_describe_faults(path, text, faults), next_step=_NEXT_STEP)
    except RecursionError:
        raise MatrixError([f"{path}:1:1 is nested too deeply to be a matrix"], next_step=_NEXT_STEP) from None
    return _build(document, path.resolve())


def position_of(path: Path, key_path: str) -> Position:
    """Return line and column, both from 1, of a key such as ``problems[2].select``.

    For a key that is not in the file it is the position of the innermost table or array around it.

    Raises:
        kernel_matrix.errors.MatrixError: the file cannot be read as TOML any more.
    """
    text = _read(path)
    _parse(path, text)
    return find(text, key_path)


def matrix_bytes(path: Path) -> bytes:
    """Return the bytes of a matrix file.

    Raises:
        OSError: It cannot be read.
    """
    return _standard_input() if path.name == STANDARD_INPUT else path.read_bytes()


@cache
def _standard_input() -> bytes:
    """Return all of standard input, each time: it is read for the matrix, its digest and the lines of its faults."""
    return sys.stdin.buffer.read()


def _read(path: Path) -> str:
    try:
        return matrix_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise MatrixError([f"{path}:{line}:1 is not UTF-8 text"], next_step="save the file as UTF-8") from None
    except OSError as error:
        what = f"{path}: cannot be read: {error.strerror}"
        raise MatrixError([what], next_step="name a matrix file, or start in a folder that has a matrix.toml") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except TomlSyntaxError as error:
        line, column = error.position or (1, 1)
        raise MatrixError([f"{path}:{line}:{column} {error.reason}"], next_step=_NEXT_STEP) from None


def _find_faults(document: Mapping[str, Any], root: Path) -> list[MatrixFault]:
    """Return all faults; values of the wrong shape are removed before the semantic checks read the document."""
    found = check_shape(document)
    rest = remove_faulty(document, found)
    malformed = {fault.path[:2] for fault in found}
    return [*found, *check_semantics(rest, malformed, root), *check_rules(rest, malformed)]


def _describe_faults(path: Path, text: str, faults: list[MatrixFault]) -> list[str]:
    positions = scan(text)
    placed = sorted((nearest(positions, fault.path), show(fault.path), fault.text) for fault in faults)
    return [f"{path}:{line}:{column} {key}: {what}" for (line, column), key, what in placed]


def _build(document: Mapping[str, Any], path: Path) -> Matrix:
    root = path.parent
    return Matrix(
        name=document["name"],
        path=path,
        gpus=tuple(_gpu(table) for table in document["gpus"]),
        toolchains=tuple(_toolchain(table, root) for table in document["toolchains"]),
        dtypes=tuple(map(Dtype, document["dtypes"])),
        problems=tuple(_problem_set(table, root) for table in document["problems"]),
        candidates=tuple(_candidate_set(table, root) for table in document.get("candidates", ({},))),
        protocol=with_protocol(Protocol(), read_protocol(document.get("protocol", {}))),
        policy=with_policy(Policy(), read_policy(document.get("policy", {}))),
        include=tuple(
            Include(match=_match(table), dtypes=tuple(map(Dtype, table["dtypes"])), reason=table["reason"])
            for table in document.get("include", ())
        ),
        exclude=tuple(Exclude(match=_match(table), reason=table["reason"]) for table in document.get("exclude", ())),
        overrides=tuple(_override(table) for table in document.get("override", ())),
    )


def _gpu(table: Mapping[str, Any]) -> GpuAxis:
    values = {key: value for key, value in table.items() if key != "vendor"}
    if "min_memory_gib" in table:
        values["min_memory_gib"] = float(table["min_memory_gib"])
    return GpuAxis(**{**values, "platform": platform_of(table)})


def _toolchain(table: Mapping[str, Any], root: Path) -> Toolchain:
    platform = platform_of(table) if "platform" in table else ""
    languages = tuple(Language(name) for name in table.get("languages", ()))
    where = table.get("environment", "")
    environment = where if where in ("", AUTO) else str(resolve(root, where))
    return Toolchain(**{**table, "platform": platform, "languages": languages, "environment": environment})


def _problem_set(table: Mapping[str, Any], root: Path) -> ProblemSet:
    lists = {key: one_or_many(value) for key, value in table.items() if key not in ("source", "path")}
    path = resolve(root, table["path"]) if "path" in table else None
    return ProblemSet(source=table["source"], path=path, **lists)


def _candidate_set(table: Mapping[str, Any], root: Path) -> CandidateSet:
    values = dict(table)
    if "select" in table:
        values["select"] = one_or_many(table["select"])
    if "path" in table:
        values["path"] = resolve(root, table["path"])
    return CandidateSet(**values)


def _match(table: Mapping[str, Any]) -> Match:
    keys = Match.__dataclass_fields__
    return Match(**{key: one_or_many(value) for key, value in table.items() if key in keys})


def _override(table: Mapping[str, Any]) -> Override:
    return Override(
        match=_match(table["match"]),
        protocol=read_protocol(table.get("protocol", {})),
        policy=read_policy(table.get("policy", {})),
        workloads=one_or_many(table["workloads"]) if "workloads" in table else (),
    )
