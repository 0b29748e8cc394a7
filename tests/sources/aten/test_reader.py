"""The operators of PyTorch: the bundled catalogue, faulty catalogues, and the modules made of entries."""
# ruff: noqa: PLC0415  # torch may be absent: only tests that need it get here

import ast
import json
import os
import random
import re
import sys
from contextlib import ExitStack
from dataclasses import replace

import pytest

from kernel_matrix.bundled import BUNDLED_PROBLEMS
from kernel_matrix.errors import UsageError
from kernel_matrix.json_schemas import load_schema
from kernel_matrix.model.enums import Dtype
from kernel_matrix.sources import load_source
from kernel_matrix.sources.aten.reader import TEMPLATE, load, module_source

CALL = {"function": "torch.add", "positional": [{"tensor": [5, 5], "dtype": "float"}, 2], "named": {}}
ENTRY = {
    "name": "add",
    "variant": "",
    "sampled": "float",
    "category": "Math",
    "tags": ["elementwise"],
    "dtypes": ["fp32", "bf16"],
    "outliers": True,
    "calls": {"smoke": CALL, "default": CALL},
    "cost": {"numbers": 50, "bytes": 8, "flops": 25},
}


def write_catalogue(folder, *entries, **changes):
    path = folder / "aten.json"
    path.write_text(json.dumps({"format": 1, "torch": "2.13.0", "operators": list(entries), **changes}))
    return path


def only(folder, **changes):
    (problem,) = load(write_catalogue(folder, ENTRY | changes), name="aten").problems
    return problem


@pytest.fixture(scope="module")
def shipped():
    return load_source("aten", None)


# ---- the catalogue that comes with the source


def test_the_shipped_catalogue_is_whole(shipped):
    assert shipped.unreadable == ()
    assert len(shipped.problems) >= 300
    assert len({p.id for p in shipped.problems}) == len({p.digest for p in shipped.problems}) == len(shipped.problems)
    assert {"aten/add", "aten/softmax", "aten/mm", "aten/nn.functional.conv2d"} <= {p.id for p in shipped.problems}


def test_what_ships_has_the_form_that_other_problems_have(shipped):
    pattern = re.compile(load_schema("problem")["properties"]["workloads"]["propertyNames"]["pattern"])
    categories = load_schema("problem")["properties"]["category"].get("enum")
    for problem in shipped.problems:
        assert next(iter(problem.workloads)).name == "smoke"
        assert all(pattern.match(w.name) for w in problem.workloads)
        assert categories is None or problem.category in categories
        assert problem.dtypes[0] in (Dtype.FP32, Dtype.INT32)


def test_every_shipped_module_defines_what_a_problem_must(shipped):
    for problem in shipped.problems:
        tree = ast.parse(problem.code.module())
        assert {"Model", "get_inputs", "get_init_inputs", "CALL"} <= {
            name for node in tree.body for name in (getattr(node, "name", None), *_assigned(node))
        }


def _assigned(node):
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def test_what_was_left_out_is_told_and_not_in():
    catalogue = json.loads(BUNDLED_PROBLEMS["aten"].read_text())
    taken = {".".join(filter(None, (e["name"], e["variant"]))) for e in catalogue["operators"]}
    for kind, names in catalogue["left_out"].items():
        assert kind
        assert not taken & names.keys()


# ---- any catalogue


def test_an_entry_becomes_a_problem(tmp_path):
    problem = only(tmp_path, variant="scalar")
    assert (problem.id, problem.source, problem.category) == ("aten/add.scalar", "aten", "Math")
    assert (problem.tags, problem.dtypes) == (("elementwise",), (Dtype.FP32, Dtype.BF16))
    smoke, default = problem.workloads
    assert json.loads(smoke.values["CALL"]) == CALL
    assert (smoke.flops, smoke.bytes) == (None, {})
    assert (default.flops, default.bytes[Dtype.FP32], default.bytes[Dtype.BF16]) == (25, 208, 108)
    constants = ["OPERATOR = 'add'", "VARIANT = 'scalar'", "SAMPLED = 'float'", f"CALL = {smoke.values['CALL']!r}"]
    assert "\n".join([*constants, ""]) in problem.adapter


@pytest.mark.parametrize(
    "changes",
    [
        {"variant": "other"},
        {"sampled": "int32"},
        {"outliers": False},
        {"calls": {"smoke": CALL}},
        {"calls": {"smoke": CALL, "default": CALL | {"named": {"alpha": 2}}}},
        {"cost": {"numbers": 51, "bytes": 8}},
    ],
)
def test_the_digest_follows_what_determines_the_answer(changes, tmp_path):
    assert only(tmp_path, **changes).digest != only(tmp_path).digest
    assert only(tmp_path, description="no part of it").digest == only(tmp_path).digest


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "../add"}, "name is"),
        ({"name": None}, "name must be a str"),
        ({"variant": "a b"}, "variant is"),
        ({"sampled": "float'"}, "sampled is"),
        ({"outliers": "yes"}, "outliers must be a bool"),
        ({"tags": [1]}, "tags must be a list of texts"),
        ({"dtypes": ["fp33"]}, "dtypes must be some of fp32"),
        ({"dtypes": []}, "got none"),
        ({"calls": {}}, "calls is empty"),
        ({"calls": {"Smoke": CALL}}, "calls.Smoke must be"),
        ({"calls": {"smoke": CALL | {"function": "os.system"}}}, "calls.smoke must be"),
        ({"calls": {"smoke": CALL | {"positional": {}}}}, "calls.smoke must be"),
        ({"calls": {"smoke": [CALL]}}, "calls.smoke must be"),
        ({"cost": {"numbers": -1, "bytes": 0}}, "cost.numbers is -1"),
        ({"cost": {"joules": 1}}, "allowed are numbers, bytes, flops"),
        ({"cost": {"numbers": 1}}, "lacks numbers or bytes"),
    ],
)
def test_a_bad_entry_costs_itself_alone(changes, reason, tmp_path):
    path = write_catalogue(tmp_path, ENTRY | changes, ENTRY | {"name": "mul"})
    loaded = load(path, name="aten")
    assert [p.id for p in loaded.problems] == ["aten/mul"]
    (bad,) = loaded.unreadable
    assert bad.path == path
    assert reason in bad.reason


def test_an_entry_that_is_no_entry_or_there_twice_is_told(tmp_path):
    loaded = load(write_catalogue(tmp_path, 3, ENTRY, ENTRY), name="aten")
    assert len(loaded.problems) == 1
    assert [bad.reason for bad in loaded.unreadable] == [
        "an operator: name must be a str; got None",
        "aten/add is there twice",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "nested too deeply|not valid JSON"),
        ("[]", "must be a JSON object; got list"),
        ('{"operators": 3, "format": 1}', "has no list of operators"),
        ('{"operators": [], "format": 2}', "of format 2, not 1"),
    ],
)
def test_what_is_no_catalogue_is_refused(text, reason, tmp_path):
    path = tmp_path / "aten.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=reason) as refused:
        load(path, name="aten")
    assert "catalogue of format 1" in refused.value.next_step


def test_a_folder_is_no_catalogue(tmp_path):
    with pytest.raises(UsageError, match="not a regular file"):
        load(tmp_path, name="aten")


# ---- the modules made of it

OF_ALL_KINDS = [
    "add",
    "abs",
    "acos",
    "pow",
    "where",
    "lerp",
    "clamp",
    "sum",
    "std",
    "var_mean",
    "amax",
    "argmax",
    "logsumexp",
    "cumsum",
    "sort",
    "topk",
    "softmax",
    "nn.functional.gelu",
    "nn.functional.layer_norm",
    "nn.functional.conv2d",
    "nn.functional.max_pool2d",
    "nn.functional.cross_entropy",
    "nn.functional.scaled_dot_product_attention",
    "nn.functional.interpolate.bilinear",
    "mm",
    "einsum",
    "baddbmm",
    "cat",
    "index_put",
    "gather",
    "scatter_add",
    "nn.functional.embedding",
    "__getitem__",
    "split",
    "linalg.cholesky",
    "svd",
    "fft.rfft",
    "transpose",
    "gcd",
]


class Staged:
    """Import a problem's module like in a judge, and make the judge's reference of it."""

    def __init__(self, folder, problem, workload="smoke", dtype=None):
        from kernel_matrix.inside.judge.reference import ReferenceModel
        from tests.inside.sessions import make_job

        self.folder = folder
        self.values = next(dict(w.values) for w in problem.workloads if w.name == workload)
        (folder / "problem.py").write_bytes(problem.code.module())
        self.job = make_job(dtype=dtype or problem.dtypes[0], outliers=problem.outliers)
        self.reference = ReferenceModel(folder / "problem.py", self.values, "cpu", self.job.dtype, self.job.seed)

    def verifier(self, undo, candidate=None):
        """Make a verifier whose workers run the problem's and the candidate's modules."""
        from kernel_matrix.inside.judge.verification import Verifier
        from kernel_matrix.inside.judge.worker_client import WorkerClient
        from kernel_matrix.model.enums import Role
        from kernel_matrix.model.messages import ContestantSpec
        from tests.inside.sessions import EAGER
        from tests.inside.workers import TIMEOUTS, served

        contestants = [EAGER]
        if candidate is not None:
            (self.folder / "candidate.py").write_text(candidate)
            contestants.append(ContestantSpec("candidate", Role.CANDIDATE, "candidate.py", "ModelNew"))
        sides = {}
        for contestant in contestants:
            side = sides[contestant.name] = WorkerClient(
                contestant, undo.enter_context(served(self.folder)), "cpu", TIMEOUTS
            )
            undo.callback(side.close)
            side.open()
            side.load(self.values)
            side.construct(self.reference, 0)
        return Verifier(replace(self.job, timeouts=TIMEOUTS), sides, random.Random(1))


@pytest.fixture
def staged(tmp_path, shipped, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("numpy")
    for name in ("eager", "candidate", "kernel_matrix_problem"):
        monkeypatch.setitem(sys.modules, name, None)  # and out again afterwards
    known, before = {p.id: p for p in shipped.problems}, dict(os.environ)
    yield lambda operator, **options: Staged(tmp_path, known[f"aten/{operator}"], **options)
    os.environ.clear()  # PyTorch's own test modules set variables when they are imported
    os.environ.update(before)


@pytest.mark.torch
@pytest.mark.parametrize("operator", OF_ALL_KINDS)
def test_an_operator_passes_its_controls(operator, staged):
    problem = staged(operator)
    with ExitStack() as undo:
        problem.verifier(undo).controls(problem.reference)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", [Dtype.FP64, Dtype.BF16])
def test_inputs_are_drawn_in_what_the_cell_asks_for(dtype, staged):
    from kernel_matrix.model.enums import InputMode

    problem = staged("add", dtype=dtype)
    drawn = problem.reference.draw(InputMode.STANDARD, "one")
    assert {str(tensor.dtype) for tensor in drawn} == {{Dtype.FP64: "torch.float64"}.get(dtype, "torch.bfloat16")}
    with ExitStack() as undo:
        problem.verifier(undo).controls(problem.reference)


@pytest.mark.torch
@pytest.mark.parametrize("operator", ["add", "cat", "sort", "linalg.cholesky", "nn.functional.embedding"])
def test_inputs_follow_the_judges_seed(operator, staged):
    from kernel_matrix.inside.input_generation import tensors_in
    from kernel_matrix.inside.judge.bits import same_bits
    from kernel_matrix.model.enums import InputMode

    reference = staged(operator).reference
    one, same, other = (tensors_in(reference.draw(InputMode.STANDARD, which)) for which in ("one", "one", "other"))
    assert all(map(same_bits, one, same))
    assert not any(same_bits(a, b) for a, b in zip(one, other, strict=True) if a.numel() > 1)


@pytest.mark.torch
def test_lists_of_tensors_stay_lists(staged):
    from kernel_matrix.model.enums import InputMode

    problem = staged("cat")
    (tensors,) = problem.reference.draw(InputMode.STANDARD, "one")
    assert len(tensors) > 1
    function, positional, named = problem.reference.init_arguments
    assert (function, positional, set(named)) == ("torch.cat", [{"input": 0}], {"dim"})


@pytest.mark.torch
def test_a_candidate_is_told_the_call(staged):
    candidate = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, function, positional, named):
        super().__init__()
        assert function == "torch.softmax" and positional[0] == {"input": 0}, (function, positional)
        self.dim = positional[1]

    def forward(self, x):
        e = (x - x.amax(self.dim, keepdim=True)).exp()
        return e / e.sum(self.dim, keepdim=True)
"""
    problem = staged("softmax")
    with ExitStack() as undo:
        verifier = problem.verifier(undo, candidate)
        verifier.controls(problem.reference)
        verifier.verify(problem.reference, "before", 2)
    assert verifier.trials
    assert all(trial.passed for trial in verifier.trials)


@pytest.mark.torch
def test_the_database_leaves_the_switches_for_tf32_to_the_judge(staged):
    import torch

    staged("acos")
    assert not torch.backends.flags_frozen()
    staged("abs")  # sets them again


@pytest.mark.torch
def test_large_calls_need_no_database(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from kernel_matrix.inside.source_module import import_file

    spec = {"tensor": [3, 4], "dtype": "float", "low": 2.0, "high": 3.0}
    index = {"tensor": [7], "dtype": "int64", "low": 0, "high": 3}
    call = {"function": "torch.index_select", "positional": [spec, 0, index], "named": {}}
    (tmp_path / "problem.py").write_text(module_source("no such operator", "", "float"))
    monkeypatch.setitem(sys.modules, "aten_large", None)
    module = import_file(tmp_path / "problem.py", "aten_large", {"CALL": json.dumps(call)})
    numbers, places = module.get_inputs()
    assert bool(((numbers >= 2) & (numbers < 3)).all())
    assert sorted(set(places.tolist())) == [p for p in range(3) if p in places.tolist()]
    answer = module.Model(*module.get_init_inputs())(numbers, places)
    assert answer.tolist() == numbers[places].tolist()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("operator", "message"), [("add", "has no such sample of add"), ("no_such_operator", "has no operator no_such_op")]
)
def test_what_another_pytorch_does_not_have_is_told(operator, message, tmp_path, monkeypatch):
    pytest.importorskip("numpy")
    pytest.importorskip("torch")
    from kernel_matrix.inside.source_module import import_file

    call = {"function": "torch.add", "positional": [{"tensor": [1, 2, 3, 4, 5], "dtype": "float"}], "named": {}}
    (tmp_path / "problem.py").write_text(module_source(operator, "", "float", json.dumps(call)))
    monkeypatch.setitem(sys.modules, "aten_absent", None)
    module = import_file(tmp_path / "problem.py", "aten_absent", {})
    with pytest.raises(LookupError, match=message):
        module.get_inputs()


@pytest.mark.torch
def test_every_kind_of_argument_comes_back(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from kernel_matrix.inside.source_module import import_file

    monkeypatch.setitem(sys.modules, "aten_template", None)
    template = import_file(TEMPLATE, "aten_template", {})
    values = [1, True, None, "mean", 0.5, float("-inf"), 1 + 2j, slice(0, 3), torch.int64, torch.channels_last]
    written = json.loads(json.dumps(template.encode([*values, (2, 3), torch.strided], torch.float32)))
    assert template._decode(written) == [*values, [2, 3], torch.strided]
    with pytest.raises(template.NotPlainError, match="Generator"):
        template.encode(torch.Generator(), torch.float32)
