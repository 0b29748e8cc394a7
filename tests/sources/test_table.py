"""Tables of problems and candidates, some of them hostile."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.sources import load_candidates, load_source
from kernel_matrix.sources import table as tables
from tests.sources.examples import REFERENCE

KERNEL = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 0.5\n"
TRITON = "import triton\n\n\n@triton.jit\ndef half(p):\n    pass\n\n\n" + KERNEL


def row(number, name, level=1, code=REFERENCE, **other):
    return {"code": code, "level": level, "name": name, "problem_id": number, **other}


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    else:
        path.write_text("".join(json.dumps(it) + "\n" for it in rows), encoding="utf-8")
    return path


ROWS = (row(19, "19_ReLU"), row(1, "Matmul", 2), row(7, "7_Net.py", 3, description="A net."))
KERNELBENCH = ("level1/19_ReLU", "level2/1_Matmul", "level3/7_Net")


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_a_row_is_a_problem(tmp_path, suffix):
    path = write(tmp_path / f"level_1{suffix}", ROWS)
    loaded = load_source("table", path)
    assert loaded.unreadable == ()
    assert tuple(problem.id for problem in loaded.problems) == KERNELBENCH
    first, second, third = loaded.problems
    assert (first.path, first.level, first.category) == (path, 1, "Other")
    assert first.code.module().decode() == REFERENCE
    assert first.dtypes == (Dtype.FP32, Dtype.FP16, Dtype.BF16)
    assert second.category == "Fusion"
    assert (first.description, third.description) == ("19 ReLU", "A net.")


def test_a_folder_of_tables_is_one_set(tmp_path):
    for place, it in enumerate(ROWS):
        write(tmp_path / f"data/level_{place}-00000-of-00001.parquet", [it])
    (tmp_path / "README.md").write_text("no table")
    assert tuple(problem.id for problem in load_source("table", tmp_path).problems) == KERNELBENCH


@pytest.mark.parametrize("column", [*tables.PROBLEM_COLUMNS["code"], "Ref Arch-Src", "PyTorch_Code_Module"])
def test_the_column_of_code_has_many_names(tmp_path, column):
    path = write(tmp_path / "t.jsonl", [{column: REFERENCE, "Task": "relu", "category": "Activation"}])
    (problem,) = load_source("table", path).problems
    assert (problem.id, problem.level, problem.category) == ("relu", None, "Activation")


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_a_table_without_code_says_what_was_looked_for(tmp_path, suffix):
    path = write(tmp_path / f"t{suffix}", [{"text": REFERENCE, "name": "x"}])
    with pytest.raises(UsageError, match=r"looked for: ref_arch_src, .*, source; it has: text, name") as raised:
        load_source("table", path)
    assert raised.value.next_step
    write(tmp_path / "good.jsonl", ROWS)
    loaded = load_source("table", tmp_path)
    assert len(loaded.problems) == 3
    assert [it.path for it in loaded.unreadable] == [path]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(2, "2_x", code=None), "has no code; got NoneType"),
        (row(2, "2_x", code="  "), "has no code; got str"),
        (row(2, "2_x", code="class Model:\n    pass\n"), "defines no get_inputs; KernelBench's form asks for"),
        (row(2, "2_x", code="def get_inputs():\n    pass\n"), "defines no Model"),
        (row(2, "2_x", code="def f(:\n"), "not valid Python at line 1 of its code"),
        (row(2, "2_x", code="a\0b"), "not valid Python"),
        (row(2, "2_x", code="(" * 2000), "not valid Python"),
        (row(2, "../../etc/passwd"), "cannot be an id"),
        (row(2, "a/../b"), "cannot be an id"),
        (row(2, "/x", None), "cannot be an id"),
        (row(None, None), "'' cannot be an id; a row needs letters"),
        (row(19, "19_ReLU"), "has the name 'level1/19_ReLU' of another row"),
    ],
)
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_faulty_row_is_reported_with_number_and_others_kept(tmp_path, suffix, bad, reason):
    path = write(tmp_path / f"t{suffix}", [ROWS[0], bad, ROWS[1]])
    loaded = load_source("table", path)
    assert tuple(problem.id for problem in loaded.problems) == KERNELBENCH[:2]
    (unreadable,) = loaded.unreadable
    assert (unreadable.path, unreadable.line) == (path, 2)
    assert reason in unreadable.reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"code": "x"', "not valid JSON"),
        (b'{"code": NaN}', "NaN is no number of JSON"),
        (b"[1, 2]", "must be a JSON object; got list"),
        (b'{"code": "\xff"}', "is not UTF-8 text"),
        (b'{"cod": "x"}', "has no code column"),
        (b'{"code": "' + b"x" * (5 << 20) + b'"}', "the line is longer than 4 MiB"),
    ],
)
def test_a_faulty_line_is_told_and_the_others_stay(tmp_path, line, reason):
    good = [json.dumps(it).encode() for it in ROWS]
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n".join([good[0], b"", line, *good[1:]]))
    loaded = load_source("table", path)
    assert len(loaded.problems) == 3
    assert [it.line for it in loaded.unreadable] == [3]
    assert reason in loaded.unreadable[0].reason


@pytest.mark.parametrize("damage", ["text", "cut", "footer", "offsets"])
def test_a_damaged_parquet_is_told(tmp_path, damage):
    path = write(tmp_path / "t.parquet", ROWS * 40)
    content = bytearray(path.read_bytes())
    if damage == "text":
        content = bytearray(b"PAR1 and nothing more PAR1")
    elif damage == "cut":
        del content[len(content) // 2 :]
    elif damage == "footer":
        content[-8:-4] = b"\xff\xff\xff\x7f"
    else:
        del content[100:200]  # every place in the footer is off, the last beyond the end
    path.write_bytes(content)
    loaded = load_source("table", path)
    assert not loaded.problems
    assert "is not readable as Parquet" in loaded.unreadable[0].reason
    assert "\n" not in loaded.unreadable[0].reason


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_there_is_a_most_of_rows(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(tables, "MAX_ROWS", 2)
    monkeypatch.setattr(tables, "_BATCH_ROWS", 1)
    loaded = load_source("table", write(tmp_path / f"t{suffix}", ROWS))
    assert len(loaded.problems) == 2
    assert [(it.line, it.reason) for it in loaded.unreadable] == [(3, "has more than 2 rows; the rest is ignored")]


def test_there_is_a_largest_file(tmp_path):
    path = tmp_path / "t.parquet"
    with path.open("wb") as file:
        os.truncate(file.fileno(), tables.MAX_FILE_BYTES + 1)
    assert [it.reason for it in load_source("table", path).unreadable] == ["is larger than 1 GiB"]


@pytest.mark.parametrize(("name", "reason"), [("none", "no such file"), ("", "a folder without any .jsonl")])
def test_what_holds_no_table_is_refused(tmp_path, name, reason):
    with pytest.raises(UsageError, match=reason):
        load_source("table", tmp_path / name)


def test_the_digest_is_of_the_text(tmp_path):
    other = row(20, "20_Same", code=REFERENCE)
    changed = row(21, "21_Other", code=REFERENCE + "\n")
    first, same, different = load_source("table", write(tmp_path / "t.jsonl", [ROWS[0], other, changed])).problems
    assert first.digest == same.digest != different.digest


def test_polars_is_imported_only_for_parquet():
    program = (
        "import sys; from pathlib import Path; from kernel_matrix.sources import load_source;"
        "import kernel_matrix.sources.table; assert 'polars' not in sys.modules"
    )
    subprocess.run((sys.executable, "-c", program), check=True, cwd=Path(__file__).resolve().parents[2])


# ---- candidates


@pytest.fixture
def problems(tmp_path):
    loaded = load_source("table", write(tmp_path / "problems.jsonl", ROWS))
    return {problem.id: problem for problem in loaded.problems}


@pytest.fixture
def read(tmp_path, problems):
    def make(*rows, suffix=".jsonl"):
        return load_candidates("table", write(tmp_path / f"runs/kernels{suffix}", rows), problems)

    return make


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_a_row_is_a_candidate(read, suffix):
    generated = {
        "level": 1,
        "problem_id": 19,
        "sample_id": 3,
        "model_name": "some model/7b",
        "method": "search",
        "custom_code": TRITON,
        "prompt_tokens": 100,
        "completion_tokens": 20.0,
        "cost": 0.25,
        "code": REFERENCE,
    }
    (found,), unreadable = read(generated, suffix=suffix)
    assert unreadable == ()
    assert (found.id, found.problem_id) == ("level1/19_ReLU/some_model_7b-3", "level1/19_ReLU")
    assert found.language is Language.TRITON
    assert found.code.written() == {"table_row.py": TRITON.encode()}
    assert (found.origin.model, found.origin.method, found.origin.sample) == ("some model/7b", "search", 3)
    assert (found.origin.tokens_in, found.origin.tokens_out, found.origin.cost_usd) == (100, 20, 0.25)


@pytest.mark.parametrize(
    "named",
    [
        {"name": "level1/19_ReLU"},
        {"name": "19_ReLU", "level": 1},
        {"name": "19_ReLU.py", "level": "1"},
        {"name": "19_ReLU"},
        {"Problem Name": "19_ReLU"},
        {"level": "level_1", "problem_id": "19"},
        {"level": 1.0, "problem_id": 19.0, "name": "ReLU, once more"},
        {"Level_ID": 1, "Task_ID": 19, "Op_Name": "19_ReLU"},
    ],
)
def test_a_row_belongs_to_the_problem_it_names(read, named):
    (found,), _ = read({"kernel": KERNEL, **named})
    assert found.problem_id == "level1/19_ReLU"


@pytest.mark.parametrize(
    "named", [{"name": "20_GELU"}, {"level": 1, "problem_id": 20}, {"level": 2, "name": "19_ReLU"}, {"level": 1}, {}]
)
def test_a_row_for_no_problem_that_is_known_is_told(read, named):
    found, unreadable = read({"kernel": KERNEL, **named}, {"kernel": KERNEL, "name": "19_ReLU"})
    assert len(found) == 1
    assert [it.line for it in unreadable] == [1]
    assert "which is not among the problems read" in unreadable[0].reason


@pytest.mark.parametrize("column", tables.CANDIDATE_COLUMNS["code"])
def test_the_column_of_a_kernel_has_many_names(read, column):
    (found,), _ = read({column: KERNEL, "task": "19_ReLU"})
    assert found.code.contents()["table_row.py"].decode() == KERNEL


def test_rows_of_one_maker_are_told_apart(read):
    same = {"kernel": KERNEL, "name": "19_ReLU", "model": "m"}
    found, unreadable = read(same, same, {"kernel": KERNEL, "name": "19_ReLU"}, same | {"model": "../.."})
    assert unreadable == ()
    assert [candidate.id.removeprefix("level1/19_ReLU/") for candidate in found] == ["m", "m-row2", "row3", "row4"]


def test_unparsable_answer_is_candidate_and_empty_one_is_not(read):
    found, unreadable = read(
        {"kernel": "def f(:", "name": "19_ReLU"},
        {"kernel": None, "name": "19_ReLU"},
    )
    assert [candidate.language for candidate in found] == [Language.TORCH]
    assert [it.line for it in unreadable] == [2]


@pytest.mark.torch
def test_the_module_of_a_row_can_be_run(read, tmp_path):
    pytest.importorskip("torch")
    (found,), _ = read({"kernel": KERNEL, "name": "19_ReLU"})
    for name, content in {"candidate.py": found.code.module(), **found.code.contents()}.items():
        (tmp_path / name).write_bytes(content)
    program = "import torch, candidate; assert candidate.ModelNew()(torch.ones(2)).tolist() == [0.5, 0.5]"
    subprocess.run((sys.executable, "-c", program), check=True, cwd=tmp_path)
