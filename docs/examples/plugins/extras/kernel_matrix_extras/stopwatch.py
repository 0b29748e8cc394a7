"""The import format ``stopwatch``: ``{"stopwatch": [{"problem": …, "candidate": …, "gpu": …, "seconds": …}]}``."""

from __future__ import annotations

from typing import Any

from kernel_matrix.sources.json_files import JsonFile, JsonNode
from kernel_matrix.sources.measurement import HOST_CLOCK, NS_PER_S, ImportedMeasurement, ImportFormat


def knows(document: Any) -> bool:
    """Return whether a parsed document is of this format."""
    return isinstance(document, dict) and isinstance(document.get("stopwatch"), list)


def read(file: JsonFile) -> list[ImportedMeasurement]:
    """Read one measurement per element; an element that is wrong is refused, and the others are read."""
    return list(file.each(file.document()["stopwatch"].elements(), _measurement))


def _measurement(node: JsonNode) -> ImportedMeasurement:
    return ImportedMeasurement(
        problem=node["problem"].text(),
        candidate=node["candidate"].text(),
        gpu=node["gpu"].text(),
        columns={"candidate_median_ns": node["seconds"].number() * NS_PER_S},
        labels=(HOST_CLOCK,),
    )


FORMAT = ImportFormat(name="stopwatch", description="times that a person took", knows=knows, read=read)
