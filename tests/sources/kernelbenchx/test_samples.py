import hashlib
import json
from dataclasses import replace

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Language
from kernel_matrix.sources import Origin, load_candidates, load_source
from tests.sources.examples import write
from tests.sources.kernelbenchx_set import SEPARATOR, checkout

CODE = "def scaled_sum(x, others, scale=1.0, *, kind=None, dtype=None):\n    return x\n"


@pytest.fixture
def problems(tmp_path):
    return {problem.id: problem for problem in load_source("kernelbenchx", checkout(tmp_path / "set")).problems}


@pytest.fixture
def read(tmp_path, problems):
    """Return a function that reads candidates from lines."""

    def readed(*rows):
        path = tmp_path / "answers.jsonl"
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        return load_candidates("kernelbenchx", path, problems)

    return readed


@pytest.mark.parametrize(
    "row",
    [
        {"file": "Fusion/scaled_sum.py"},
        {"file": "scaled_sum.py"},
        {"file": "scaled_sum"},
        {"file": "OtherFolder/scaled_sum.py", "instruction": "A quantised product of two matrices."},
        {"instruction": "Write a kernel.\nFunctional Description: Sums several tensors\nand scales. Be quick."},
        {"prompt": "Wrapper Entry Information: torch.scaled_sum(x, others) -> Tensor"},
        {"query": "Wrapper Entry Information: def scaled_sum(x)"},
    ],
)
def test_a_line_is_for_the_task_it_names_or_describes(read, row):
    (candidate,), refused = read({"predict": CODE, **row})
    assert not refused
    assert (candidate.id, candidate.problem_id) == ("Fusion/scaled_sum/0", "Fusion/scaled_sum")
    assert (candidate.entry, candidate.defines) == ("ModelNew", "scaled_sum")
    assert candidate.code.written() == {"kernel.py": CODE.encode()}


TEXTS = {
    "plain": CODE,
    "fenced": f"```python\n{CODE}```",
    "with words around": f"Here it is:\n\n```python\n{CODE}```\n\nIt is called like this:\n\n```\nscaled_sum(x)\n```\n",
    "not closed": f"```python\n{CODE}",
    "with its test": f"{CODE}{SEPARATOR}\n\nimport torch\nscaled_sum(torch.ones(2))\n",
    "fenced, with its test": f"```\n{CODE}{SEPARATOR}\nscaled_sum(1)\n```",
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_code_alone_is_taken(read, name):
    (candidate,), _ = read({"predict": TEXTS[name], "file": "scaled_sum.py"})
    assert candidate.extra_files["kernel.py"].decode() == CODE


def test_the_other_name_is_what_its_author_defined(read):
    other = CODE.replace("scaled_sum", "kernel_function")
    rows = [{"predict": code, "file": "scaled_sum.py"} for code in (other, other + CODE, "x = 1", "scaled_sum = print")]
    found, _ = read(*rows)
    assert [c.defines for c in found] == ["kernel_function", "scaled_sum", "scaled_sum", "scaled_sum"]


def test_the_language_is_read_off_the_code(read):
    kernel = "import triton\n\n@triton.jit\ndef kernel(x):\n    pass\n\n"
    found, _ = read(*({"predict": code, "file": "scaled_sum.py"} for code in (CODE, kernel + CODE)))
    assert [candidate.language for candidate in found] == [Language.TORCH, Language.TRITON]


def test_where_a_line_comes_from_is_kept(read):
    row = {
        "predict": CODE,
        "file": "scaled_sum.py",
        "instruction": "Sum!",
        "model": "some-model",
        "method": "search",
        "sample": 7,
        "round": 2,
        "cost_usd": 1,
        "usage": {"prompt_tokens": 10, "completion_tokens": 20},
        "label": "ignored",
    }
    (candidate,), _ = read(row)
    assert candidate.id == "Fusion/scaled_sum/7"
    assert candidate.origin == Origin(
        model="some-model",
        method="search",
        sample=7,
        round=2,
        cost_usd=1.0,
        tokens_in=10,
        tokens_out=20,
        prompt_sha256=hashlib.sha256(b"Sum!").hexdigest(),
    )


def test_what_is_no_number_is_not_taken_for_one(read):
    row = {"predict": CODE, "file": "scaled_sum.py", "sample": "7", "round": True, "tokens_in": -1, "cost_usd": "1"}
    (candidate,), _ = read({**row, "model": 3})
    assert candidate.origin == Origin(sample=0)


def test_samples_are_numbered_by_task(read):
    rows = [{"predict": CODE, "file": file} for file in ("scaled_sum.py", "product_w8a8.py", "scaled_sum.py")]
    found, _ = read(*rows, {**rows[0], "sample": 1}, {**rows[0], "sample": 9}, rows[0])
    assert [c.id.split("/", 1)[1] for c in found] == [
        "scaled_sum/0",
        "product_w8a8/0",
        "scaled_sum/1",
        "scaled_sum/2",
        "scaled_sum/9",
        "scaled_sum/3",
    ]
    assert [c.origin.sample for c in found] == [0, 0, 1, 2, 9, 3]


def test_unreadable_items_are_listed_with_line_and_rest_is_read(read, tmp_path):
    found, refused = read(
        "{",
        "",
        {"file": "scaled_sum.py"},
        {"predict": CODE, "file": "scaled_sums.py"},
        {"predict": CODE, "prompt": "Write something."},
        {"predict": "```python\n```", "file": "scaled_sum.py"},
        '["predict"]',
        {"predict": CODE, "file": "scaled_sum.py"},
    )
    assert [candidate.id for candidate in found] == ["Fusion/scaled_sum/0"]
    assert [(str(bad).split(":")[0], bad.line) for bad in refused] == [
        (str(tmp_path / "answers.jsonl"), line) for line in (1, 3, 4, 5, 6, 7)
    ]
    assert [bad.reason for bad in refused[1:]] == [
        "is not an object with the code as text in `predict`",
        "is for 'scaled_sums.py', which is not a known task; did you mean 'scaled_sum'?",
        "has neither a `file` nor a known task in `instruction`",
        "has no code",
        "is not an object with the code as text in `predict`",
    ]


def test_a_file_that_names_two_tasks_is_refused(tmp_path, problems):
    twin = replace(problems["Fusion/scaled_sum"], id="Math/scaled_sum")
    path = write(tmp_path / "mine/scaled_sum.py", CODE)
    found, refused = load_candidates("kernelbenchx", path, {**problems, twin.id: twin})
    assert not found
    assert refused[0].reason == "is for 'mine/scaled_sum.py', which is any of Fusion/scaled_sum, Math/scaled_sum"


def test_a_folder_tells_which_of_two_tasks_is_meant(tmp_path, problems):
    twin = replace(problems["Fusion/scaled_sum"], id="Math/scaled_sum")
    path = write(tmp_path / "Math/scaled_sum.py", CODE)
    (candidate,), _ = load_candidates("kernelbenchx", path, {**problems, twin.id: twin})
    assert candidate.problem_id == "Math/scaled_sum"


def test_a_folder_is_read_with_all_that_is_in_it(tmp_path, problems):
    write(tmp_path / "run/a/Fusion/scaled_sum.py", CODE)
    write(tmp_path / "run/b/scaled_sum.py", CODE)
    write(tmp_path / "run/b/notes.txt", "none")
    write(tmp_path / "run/b/stranger.py", CODE)
    write(tmp_path / "run/c.jsonl", json.dumps({"predict": CODE, "file": "product_w8a8.py"}))
    found, refused = load_candidates("kernelbenchx", tmp_path / "run", problems)
    assert [candidate.id for candidate in found] == [
        "Fusion/scaled_sum/0",
        "Fusion/scaled_sum/1",
        "Quantization/product_w8a8/0",
    ]
    assert [bad.path.name for bad in refused] == ["stranger.py"]


def test_the_digest_is_of_the_code_and_the_task_it_is_for(read):
    rows = [{"predict": code, "file": f} for code in (CODE, CODE + "#") for f in ("scaled_sum.py", "product_w8a8.py")]
    found, _ = read(*rows, rows[0])
    digests = [candidate.digest for candidate in found]
    assert len(set(digests[:4])) == 4
    assert digests[4] == digests[0]


def test_problems_of_other_sources_are_no_tasks(tmp_path, problems):
    strangers = {id_: replace(problem, adapter="", extra_files={}) for id_, problem in problems.items()}
    found, refused = load_candidates("kernelbenchx", write(tmp_path / "scaled_sum.py", CODE), strangers)
    assert not found
    assert len(refused) == 1


@pytest.mark.parametrize("name", ["absent", "empty", "notes.txt"])
def test_anything_else_is_refused(tmp_path, problems, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("none")
    with pytest.raises(UsageError, match="neither is nor has a candidate"):
        load_candidates("kernelbenchx", tmp_path / name, problems)
