"""Load ``matrix.toml`` as a :class:`~kernel_matrix.matrix.Matrix`, or report all of its faults at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_matrix.config_files.config_text import ConfigText, read_config, resolve
from kernel_matrix.config_files.faults import ConfigFault
from kernel_matrix.config_files.shape import check_shape, remove_faulty
from kernel_matrix.environments import AUTO
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
from kernel_matrix.matrix.globs import one_or_many
from kernel_matrix.matrix.rule_checks import check_rules
from kernel_matrix.matrix.semantics import check_semantics, platform_of
from kernel_matrix.matrix.tiers import read_policy, read_protocol, with_policy, with_protocol
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.toml_text import Position, find

_NEXT_STEP = "kernel-matrix docs matrix lists every key"
_IF_MISSING = "name a matrix file, or start in a folder that has a matrix.toml"


def load_matrix(path: Path) -> Matrix:
    """Read and check a matrix file; ``-`` is standard input, whose relative paths start from the working directory.

    Raises:
        kernel_matrix.errors.ConfigError: with one line per fault, ``file:line:column key: fault; allowed values``.
    """
    text = _read(path)
    document = text.parse()
    try:
        faults = _find_faults(document, path.resolve().parent)
    except RecursionError:
        raise text.nested_too_deeply() from None
    if faults:
        raise text.error(faults)
    return _build(document, path.resolve())


def position_of(path: Path, key_path: str) -> Position:
    """Return line and column, both from 1, of a key such as ``problems[2].select``.

    For a key that is not in the file it is the position of the innermost table or array around it.

    Raises:
        kernel_matrix.errors.ConfigError: the file cannot be read as TOML any more.
    """
    text = _read(path)
    text.parse()
    return find(text.text, key_path)


def _read(path: Path) -> ConfigText:
    return read_config(path, kind="a matrix", next_step=_NEXT_STEP, if_missing=_IF_MISSING)


def _find_faults(document: Mapping[str, Any], root: Path) -> list[ConfigFault]:
    """Return all faults; values of the wrong shape are removed before the semantic checks read the document."""
    found = check_shape(document, "matrix")
    rest = remove_faulty(document, found)
    malformed = {fault.path[:2] for fault in found}
    return [*found, *check_semantics(rest, malformed, root), *check_rules(rest, malformed)]


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
    if "without" in table:
        values["without"] = tuple(table["without"])
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
