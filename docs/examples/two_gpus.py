"""Two GPUs compared, as a notebook: each ``# %%`` is a cell.

``results/example-h200.kmz`` was measured on two H200s of one machine. Every cell ran on one of them only, but each
measured eager PyTorch too, so that eager's times of both can be compared: the same code on two boards of one model.
"""

# %% Open the records. With many of them, merge once with ``kernel_matrix.merge`` and open the tables.
import json
import tempfile
from pathlib import Path

import polars as pl

import kernel_matrix

results = kernel_matrix.Results("results/example-h200.kmz")
outcomes = results.filter("status=passed", "workload=default").outcomes()
first, second = outcomes["gpu_uuid"].drop_nulls().unique().sort()

# %% Eager's time per problem and dtype on each board, nanoseconds.
eager = (
    outcomes.filter(pl.col("baseline_ns") > 0)
    .group_by("problem", "dtype", "gpu_uuid")
    .agg(pl.col("baseline_ns").median())
    .pivot("gpu_uuid", index=["problem", "dtype"], values="baseline_ns")
    .drop_nulls()
    .with_columns(ratio=pl.col(second) / pl.col(first))
    .sort("ratio")
)
print(eager)
print(f"{eager.height} pairs; median ratio {eager['ratio'].median():.3f}")

# %% The same as tables of two GPUs: two files in KernelBench's format, one folder per GPU, imported.
folder = Path(tempfile.mkdtemp(prefix="two-gpus-"))
for name, uuid in (("h200-a", first), ("h200-b", second)):
    times = {
        f"{problem}_{dtype}.py": {
            "mean": value / 1e6,
            "std": 0.0,
            "min": value / 1e6,
            "max": value / 1e6,
            "num_trials": 1,
        }
        for problem, dtype, value in eager.select("problem", "dtype", uuid).iter_rows()
    }
    file = folder / name / "baseline_time_torch.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"level1": times}), encoding="utf-8")
imported = kernel_matrix.import_results(folder, folder / "tables")
print(f"{imported.rows} rows of {imported.gpus} GPUs")

# %% Compare them. One time per side has no interval, so that no difference can be shown: runs of both sides would.
tables = kernel_matrix.Results(folder / "tables")
compared = kernel_matrix.compare(tables, between="gpu=h200-a,h200-b")
print({change.value: number for change, number in compared.counts().items()})
print(compared.rows.select("problem", "change", "ratio").head())

# %% One point per problem and dtype; a notebook draws it, ``chart.svg()`` makes a file of it.
chart = tables.chart_axis("gpu", "h200-a", "h200-b")
print(len(chart.spec["data"]["values"]), "points")
