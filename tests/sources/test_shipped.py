"""The bundled problems are sound, and their library modules call the libraries correctly."""

import importlib
import itertools

import pytest

from kernel_matrix.model.enums import Dtype, InputMode
from kernel_matrix.sources import load_source

torch = pytest.importorskip("torch")
judging = importlib.import_module("tests.problems.judging")  # needs torch, so not before the line above
controls = importlib.import_module("kernel_matrix.inside.judge.controls")
LOWER_BITS = importlib.import_module("kernel_matrix.inside.input_generation").LOWER_BITS
import_file = importlib.import_module("kernel_matrix.inside.source_module").import_file
CublasByColumns = importlib.import_module("tests.sources.cublas_by_columns").CublasByColumns

pytestmark = pytest.mark.torch

PROBLEMS = {problem.id: problem for name in ("vllm", "cublas") for problem in load_source(name, None).problems}
CASES = [(problem, dtype) for problem in PROBLEMS.values() for dtype in problem.dtypes]
LIBRARIES = [(problem, dtype) for problem, dtype in CASES if problem.library is not None]
WHOLE_ANSWERS = {"cublas/iamax", "vllm/per_tensor_quant_int8"}
"""Problems with integer outputs, which do not show the precision of the arithmetic."""
PRECISION_BLIND = {"cublas/asum", "cublas/nrm2", "vllm/per_tensor_quant_fp8"}
"""Problems with few or coarse outputs, which may not show the next lower precision."""
OF_TORCH = {"gemm", "gemm_int8", "gemm_strided_batched", "gemv", "dot"}
"""Routines that torch itself calls."""


def each(cases):
    return pytest.mark.parametrize(("problem", "dtype"), cases, ids=[f"{p.id}-{d.value}" for p, d in cases])


def smoke(problem):
    return dict(next(w.values for w in problem.workloads if w.name == "smoke"))


def referenced(problem, dtype):
    return judging.ReferenceModel(problem.path, smoke(problem), "cpu", dtype, judging.SECRET)


def held_to(problem, reference, expected):
    """Return the tolerance of one case, including the judge's tolerance of single elements."""
    tolerance = judging.Tolerance.of(reference.dtype, problem.tolerance)
    variations = controls.variations(reference, expected)
    return judging.Tolerance(tolerance.rtol, tolerance.atol, variations)


@each(CASES)
def test_the_reference_passes_and_empty_answers_do_not(problem, dtype):
    reference = referenced(problem, dtype)
    assert reference.precision == ("float64" if dtype not in judging.WHOLE_DTYPES else dtype.value)
    for mode in judging.modes_of(dtype, outliers=problem.outliers):
        inputs = reference.draw(mode, "test")
        expected = reference.expect(inputs)
        assert controls.is_finite(expected) or mode is InputMode.EXACT
        if not controls.is_finite(expected):
            continue
        tolerance = held_to(problem, reference, expected)
        controls.check_repeatable(reference, inputs, expected, tolerance)
        assert judging.accepts(expected.trusted, expected, tolerance)
        controls.check_worthless(expected, tolerance)


@each(CASES)
def test_each_output_depends_on_inputs_and_precision(problem, dtype):
    reference = referenced(problem, dtype)
    inputs = reference.draw(InputMode.STANDARD, 1)
    expected = reference.expect(inputs)
    assert all(change > 0.01 for change in controls.sensitivity(reference, inputs, expected))
    rejected = controls.rejects_lower_precision(reference, inputs, expected, held_to(problem, reference, expected))
    if dtype not in LOWER_BITS or problem.id in WHOLE_ANSWERS:
        assert rejected is None
    else:
        assert rejected or problem.id in PRECISION_BLIND


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_says_so_when_it_writes_into_its_inputs(problem):
    reference = referenced(problem, problem.dtypes[0])
    inputs = reference.draw(InputMode.STANDARD, 1)
    given = judging.map_tensors(inputs, torch.clone)
    reference._run(reference._model, given)
    kept = map(torch.equal, judging.tensors_in(inputs), judging.tensors_in(given))
    assert problem.mutates_inputs is not all(kept)


@each(LIBRARIES)
def test_the_call_of_a_library_agrees_with_the_reference(problem, dtype):
    reference = referenced(problem, dtype)
    model = judging._construct(problem.library, reference)
    for mode in judging.modes_of(dtype, outliers=problem.outliers):
        inputs = reference.draw(mode, "library")
        expected = reference.expect(inputs)
        if controls.is_finite(expected):
            assert_right(
                model(*judging.map_tensors(inputs, torch.clone)), expected, held_to(problem, reference, expected)
            )


@each([case for case in LIBRARIES if case[0].source == "cublas" and case[0].path.parent.name not in OF_TORCH])
def test_cublas_is_called_as_its_manual_has_it(problem, dtype, monkeypatch):
    """Call cuBLAS on a GPU, or else a stand-in that reads memory in the same order."""
    routine, library = problem.path.parent.name, import_file(problem.library, "library", {})
    cublas = CublasByColumns()
    monkeypatch.setattr(library, "CUBLAS", cublas)
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: 1)
    reference = referenced(problem, dtype)
    inputs = reference.draw(InputMode.STANDARD, "library")
    expected = reference.expect(inputs)
    outputs = getattr(library, routine)(*judging.map_tensors(inputs, torch.clone))
    assert_right(outputs, expected, held_to(problem, reference, expected))
    assert cublas.called
    assert {called[6 + called.startswith("cublasI")].upper() for called in cublas.called} == {"SD"[dtype is Dtype.FP64]}
    assert cublas.pointer_mode == 0, "torch's own calls expect results on the host"


def assert_right(returned, expected, tolerance):
    outputs = (returned,) if isinstance(returned, torch.Tensor) else tuple(returned)
    for output, due in itertools.zip_longest(outputs, expected.trusted):
        assert (output.dtype, output.shape, output.stride()) == (due.dtype, due.shape, due.stride())
    assert judging.accepts(outputs, expected, tolerance)


@pytest.mark.parametrize(
    "op", ["per_token_quant_int8", "per_tensor_quant_int8", "per_token_quant_fp8", "per_tensor_quant_fp8"]
)
@pytest.mark.parametrize("dtype", [Dtype.FP16, Dtype.BF16])
def test_quantised_elements_are_far_from_step_middles(op, dtype):
    """Quantised elements do not change under an error of hundreds of roundings in the division."""
    problem = PROBLEMS[f"vllm/{op}"]
    values = {**smoke(problem), "TOKENS": 200, "HIDDEN": 3000}
    reference = judging.ReferenceModel(problem.path, values, "cpu", dtype, judging.SECRET)
    x, *others = reference.draw(InputMode.STANDARD, "middle")
    quantised = reference.answer([x, *others])[0]
    for factor in (1 - 2e-5, 1 + 2e-5):
        if "int8" in op and "token" in op:
            scale = x.float().abs().amax(dim=-1, keepdim=True) / 127
            again = torch.round(x.float() / scale * factor).to(torch.int8)
        elif "int8" in op:
            again = torch.round(x.float() / others[0].float() * factor).clamp(-128, 127).to(torch.int8)
        else:
            dims = -1 if "token" in op else (0, 1)
            scale = x.float().abs().amax(dim=dims, keepdim=True) / 448
            again = (x.float() / scale * factor).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
        assert torch.equal(again, quantised)
