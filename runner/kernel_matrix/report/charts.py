"""Charts of results as Vega-Lite specifications, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from kernel_matrix.errors import NothingSelectedError, UsageError

_SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v5.json"
_POINT: Final = ("problem", "ranks", "workload", "candidate", "dtype", "toolchain")


@dataclass(frozen=True, slots=True)
class Chart:
    """A Vega-Lite chart; a notebook draws it."""

    spec: Mapping[str, Any]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"application/vnd.vegalite.v5+json": dict(self.spec), "text/plain": repr(self)}

    def svg(self) -> str:
        """Draw the chart as SVG.

        Raises:
            UsageError: The extra ``report`` is not installed.
        """
        try:
            import vl_convert  # noqa: PLC0415  # an extra, of 80 MB
        except ImportError:
            raise UsageError(
                "vl-convert-python is not installed", next_step="pip install 'kernel-matrix[report]'"
            ) from None
        drawn: str = vl_convert.vegalite_to_svg(dict(self.spec))
        return drawn


def speedup_by_gpu(outcomes: pl.DataFrame) -> Chart:
    """Chart the speed-up over eager of everything that passed, by GPU.

    Args:
        outcomes: See :data:`kernel_matrix.analysis.outcomes.OUTCOMES`.

    Raises:
        NothingSelectedError: Nothing has a speed-up.
    """
    timed = outcomes.filter(pl.col("speedup").is_finite() & (pl.col("speedup") > 0))
    encoding = {
        "x": {"field": "speedup", "type": "quantitative", "scale": {"type": "log"}, "title": "speed-up over eager"},
        "y": {"field": "candidate", "type": "nominal", "title": None},
        "color": {"field": "gpu", "type": "nominal", "title": "GPU"},
    }
    return _points(timed.select(*_POINT, "gpu", "speedup", "verdict", "grade"), encoding, "verdict", "grade")


def compare_axis(outcomes: pl.DataFrame, axis: str, base: str, new: str) -> Chart:
    """Chart the candidate's time at two values of ``axis`` against each other.

    Args:
        outcomes: See :data:`kernel_matrix.analysis.outcomes.OUTCOMES`.
        axis: A column of text.
        base: The value across.
        new: The value upwards.

    Units: microseconds.

    Raises:
        UsageError: There is no such column.
        NothingSelectedError: Nothing was timed at both values.
    """
    if axis not in outcomes.columns:
        raise UsageError(f"{axis!r} is no column of outcomes", next_step="e.g. gpu, toolchain, dtype or gpu_uuid")
    key = [name for name in (*_POINT, "gpu") if name != axis]
    timed = outcomes.filter(pl.col("candidate_ns").is_not_null()).with_columns(pl.col(axis).cast(pl.String))
    sides = [
        timed.filter(pl.col(axis) == value).group_by(key).agg((pl.col("candidate_ns").median() / 1000).alias(name))
        for name, value in (("base_us", base), ("new_us", new))
    ]
    both = sides[0].join(sides[1], on=key, how="inner", nulls_equal=True).sort(key)
    encoding = {
        "x": {"field": "base_us", "type": "quantitative", "scale": {"type": "log"}, "title": f"µs, {axis} {base}"},
        "y": {"field": "new_us", "type": "quantitative", "scale": {"type": "log"}, "title": f"µs, {axis} {new}"},
        "color": {"field": "problem", "type": "nominal"},
    }
    return _points(both, encoding)


def _points(rows: pl.DataFrame, encoding: dict[str, Any], *facts: str) -> Chart:
    if rows.is_empty():
        raise NothingSelectedError("nothing that was timed is left to draw", next_step="Loosen the filter.")
    values = [{name: str(v) if name in _POINT else v for name, v in row.items()} for row in rows.to_dicts()]
    tooltip = [{"field": name} for name in (*_POINT, *facts) if name in rows.columns]
    return Chart(
        {
            "$schema": _SCHEMA,
            "data": {"values": values},
            "mark": {"type": "point", "filled": True},
            "encoding": {**encoding, "tooltip": tooltip},
        }
    )
