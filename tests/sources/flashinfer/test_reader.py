"""Sets of flashinfer-bench and problems of SOL-ExecBench, read without running anything of them."""

import json
from pathlib import Path

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype
from kernel_matrix.sources import load_source
from kernel_matrix.sources.flashinfer.reader import MAX_WORKLOADS
from tests.sources.flashinfer_set import DEFINITION, WORKLOAD, changed, container, write_set


def reasons(loaded):
    return [str(it) for it in loaded.unreadable]


def test_a_definition_of_a_set_is_a_problem(tmp_path):
    loaded = load_source("flashinfer", write_set(tmp_path))
    assert reasons(loaded) == []
    (problem,) = loaded.problems
    assert (problem.id, problem.category, problem.tags) == ("mixed_h32", "MatrixMultiply", ("status:verified",))
    assert problem.dtypes == (Dtype.BF16,)
    assert problem.description == "A product of 8-bit weights."
    assert [(w.name, w.values) for w in problem.workloads] == [("w0", {"M": 7, "N": 64, "workload": "6120f144"})]
    assert problem.path == tmp_path / "definitions/gemm/mixed.json"
    assert problem.extra_files["reference_run.py"].decode() == DEFINITION["reference"]
    assert problem.outliers
    assert not problem.mutates_inputs
    compile(problem.adapter, "problem.py", "exec")


def test_a_folder_of_sol_execbench_is_a_problem(tmp_path):
    folder = tmp_path / "data/L2/mixed"
    folder.mkdir(parents=True)
    (folder / "definition.json").write_text(json.dumps(changed(DEFINITION, "op_type", None)))
    (folder / "workload.jsonl").write_text(json.dumps(changed(WORKLOAD, "inputs.rows", {"type": "random"})))
    loaded = load_source("flashinfer", tmp_path)
    (reason,) = reasons(loaded)
    assert "mixed_h32 has no workload that can be run; the first: inputs.rows is random, but the definition" in reason
    (folder / "definition.json").write_text(json.dumps(changed(DEFINITION, "constraints", None)))
    (problem,) = load_source("flashinfer", tmp_path).problems
    assert problem.level == 2
    assert list(problem.extra_files) == ["reference_run.py"]


@pytest.mark.parametrize(
    ("dtype", "cell"),
    [("float16", Dtype.FP16), ("float64", Dtype.FP64), ("float8_e5m2", Dtype.FP8_E5M2), ("int8", Dtype.FP32)],
)
def test_the_first_floating_input_names_the_cell(tmp_path, dtype, cell):
    definition = changed(DEFINITION, "inputs.x.dtype", dtype)
    for other in ("weight", "bias"):
        definition = changed(definition, f"inputs.{other}.dtype", "int8" if dtype == "int8" else "float32")
    (problem,) = load_source("flashinfer", write_set(tmp_path, definition)).problems
    assert problem.dtypes == (cell,)


def test_only_what_crosses_as_floating_point_is_made_outliers_of(tmp_path):
    captured = {**DEFINITION["inputs"], "x": {"shape": ["M"], "dtype": "float32"}}
    definition = changed(changed(DEFINITION, "inputs", captured), "inputs.rows.dtype", "int32")
    fp8 = changed(DEFINITION, "inputs.x.dtype", "float8_e4m3fn")
    assert load_source("flashinfer", write_set(tmp_path, definition)).problems[0].outliers
    assert not load_source("flashinfer", write_set(tmp_path, fp8)).problems[0].outliers


@pytest.mark.parametrize(
    "statement", ["bias.add_(1)", "bias[0] = 1", "bias += 1", "bias[0] += 1", "bias.index_add_(0, rows, x)"]
)
def test_a_reference_that_writes_into_its_inputs_is_told(tmp_path, statement):
    reference = f"def run(x, weight, bias, rows, scale):\n    {statement}\n    return x, bias\n"
    (problem,) = load_source("flashinfer", write_set(tmp_path, changed(DEFINITION, "reference", reference))).problems
    assert problem.mutates_inputs


def test_inputs_may_be_made_by_the_definition(tmp_path):
    reference = DEFINITION["reference"] + "\n\ndef make(sizes, device):\n    return {}\n"
    definition = changed(changed(DEFINITION, "reference", reference), "custom_inputs_entrypoint", "make")
    custom = {name: {"type": "custom"} for name in DEFINITION["inputs"]}
    (problem,) = load_source(
        "flashinfer", write_set(tmp_path, definition, changed(WORKLOAD, "inputs", custom))
    ).problems
    assert not problem.outliers


@pytest.mark.parametrize(
    ("path", "new", "reason"),
    [
        ("name", "../../etc/passwd", "name: '../../etc/passwd' cannot be an id"),
        ("name", "a/b", "name: 'a/b' cannot be an id"),
        ("name", ..., "name: must be a text; got null"),
        ("axes", [1], "axes: must be an object of at most 256 entries; got [1]"),
        ("axes.M", {"type": "odd"}, 'axes.M: type must be const, var or expr; got "odd"'),
        ("axes.H.value", -1, "axes.H: value must be a whole number from 0 to 2**48; got -1"),
        ("axes.H.value", 1 << 70, "axes.H: value must be a whole number from 0 to 2**48"),
        ("axes.H.value", True, "axes.H: value must be a whole number from 0 to 2**48; got true"),
        ("axes.json", {"type": "var"}, "axes.json: the module that makes the inputs uses"),
        ("axes.len", {"type": "var"}, "axes.len: the module that makes the inputs uses"),
        ("axes.while", {"type": "var"}, "axes.while: the module that makes the inputs uses"),
        ("axes.a-b", {"type": "var"}, "axes: 'a-b' cannot be a name"),
        ("inputs", {}, "inputs: there are none"),
        ("inputs.x.dtype", "float4_e2m1", 'inputs.x: dtype "float4_e2m1" is unsupported; supported: float64'),
        ("inputs.x.dtype", ["bfloat16"], 'inputs.x: dtype ["bfloat16"] is unsupported'),
        ("inputs.x.shape", ["M", "Q"], 'inputs.x: shape names "Q", which is not an axis; axes: M, H, N'),
        ("inputs.x.shape", "MH", "inputs.x: shape must be a list of axes or null"),
        ("inputs.x", None, "inputs.x: must be an object; got null"),
        ("outputs", ..., "outputs: must be an object"),
        ("reference", ..., "reference: must be a text; got null"),
        ("reference", "def run(:", "reference: not valid Python at its line 1"),
        ("reference", "x = 1", "reference: the reference defines no function 'run'"),
        ("reference", "(" * 5000, "reference: not valid Python"),
        ("custom_inputs_entrypoint", "os.system", "the reference defines no function 'os.system'"),
        ("op_type", "sampling", "op_type: 'sampling' is unsupported: random outputs"),
    ],
)
def test_a_faulty_definition_is_told_and_loses_nothing_else(tmp_path, path, new, reason):
    write_set(tmp_path)
    broken = tmp_path / "definitions/gemm/broken.json"
    broken.write_text(json.dumps(changed(changed(DEFINITION, "name", "broken"), path, new), indent=2))
    loaded = load_source("flashinfer", tmp_path)
    assert [problem.id for problem in loaded.problems] == ["mixed_h32"]
    (unreadable,) = loaded.unreadable
    assert unreadable.path == broken
    assert reason in unreadable.reason
    assert "\n" not in unreadable.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"name": "x",\n "axes": {', ":2: not valid JSON"),
        ('{"name": NaN}', ":1: not valid JSON: NaN is no number of JSON"),
        ('{"name": -Infinity}', ":1: not valid JSON: -Infinity is no number of JSON"),
        ('{"name": 1e999}', ":1: not valid JSON: 1e999 is too large"),
        ('{"name": ' + "9" * 10_000 + "}", ":1: not valid JSON: Exceeds the limit"),
        ("[]", ":1: must be a JSON object; got list"),
        ("[" * 100_000, ":1: "),  # nested too deeply for the parser, or without an end
        (b"\xff\xfe", ":1: is not UTF-8 text"),
        (b" " * (5 << 20), ": is larger than 4 MiB"),
    ],
)
def test_what_is_no_json_is_told_with_its_line(tmp_path, text, reason):
    write_set(tmp_path)
    content = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "definitions/gemm/broken.json").write_bytes(content)
    loaded = load_source("flashinfer", tmp_path)
    assert len(loaded.problems) == 1
    (told,) = reasons(loaded)
    assert f"broken.json{reason}" in told


@pytest.mark.parametrize(
    ("path", "new", "reason"),
    [
        ("axes.M", ..., "axes.M must be a whole number from 0 to 2**48; got None"),
        ("axes.M", 0, "violates the definition's constraint 'M >= 1'"),
        ("axes.M", 1.5, "axes.M must be a whole number"),
        ("axes.M", 1 << 45, "inputs and outputs have "),
        ("axes", None, "axes must be an object"),
        ("uuid", 7, "uuid must be a text"),
        ("inputs", [], "inputs must be an object"),
        ("inputs.x", ..., "inputs.x: type must be random, scalar, safetensors or custom; got None"),
        ("inputs.x.type", "zeros", "inputs.x: type must be random, scalar, safetensors or custom; got 'zeros'"),
        ("inputs.x.type", "custom", "inputs.x is custom, but the definition names no custom_inputs_entrypoint"),
        ("inputs.scale.type", "random", "inputs.scale is a plain number; it must be scalar"),
        ("inputs.scale.value", "0.5", "inputs.scale: value must be a number"),
        ("inputs.scale.value", None, "inputs.scale: value must be a number"),
        ("inputs.rows.type", "random", "inputs.rows is random, but the definition has a constraint"),
        ("inputs.rows.tensor_key", 1, "inputs.rows: path and tensor_key must be texts"),
        ("inputs.rows.tensor_key", "cols", "has no tensor 'cols'; it has: rows"),
        ("inputs.rows.path", "../rows.safetensors", "leaves its folder"),
        ("inputs.rows.path", "/etc/passwd", "leaves its folder"),
        ("inputs.rows.path", "blob/../../rows", "leaves its folder"),
        ("inputs.rows.path", "blob\0", "leaves its folder"),
        ("inputs.rows.path", "blob/none", "there is no such file"),
    ],
)
def test_a_faulty_workload_is_told_and_the_others_stay(tmp_path, path, new, reason):
    good = changed(WORKLOAD, "uuid", "good")
    loaded = load_source("flashinfer", write_set(tmp_path, DEFINITION, changed(WORKLOAD, path, new), good))
    assert [w.values["workload"] for w in loaded.problems[0].workloads] == ["good"]
    (unreadable,) = loaded.unreadable
    assert (unreadable.path.name, unreadable.line) == ("mixed.jsonl", 1)
    assert reason in unreadable.reason


def test_no_workload_may_be_the_same_at_each_call(tmp_path):
    scalars = {name: it for name, it in WORKLOAD["inputs"].items() if name in ("rows", "scale")}
    definition = {name: DEFINITION["inputs"][name] for name in scalars}
    loaded = load_source(
        "flashinfer",
        write_set(tmp_path, changed(DEFINITION, "inputs", definition), changed(WORKLOAD, "inputs", scalars)),
    )
    assert not loaded.problems
    assert "no input is random" in loaded.unreadable[-1].reason


def test_lines_that_are_no_json_are_told(tmp_path):
    line = json.dumps({"definition": "mixed_h32", "workload": WORKLOAD})
    text = '{"workload": {\n' + line + '\n{"axes": {"M": NaN}}\n[1]\n'
    loaded = load_source("flashinfer", write_set(tmp_path, text=text))
    assert len(loaded.problems) == 1
    assert [it.line for it in loaded.unreadable] == [1, 3, 4]


def test_equal_uuids_are_told_and_missing_ones_made_up(tmp_path):
    nameless = changed(WORKLOAD, "uuid", ...)
    loaded = load_source("flashinfer", write_set(tmp_path, DEFINITION, WORKLOAD, WORKLOAD, nameless))
    assert [w.values["workload"] for w in loaded.problems[0].workloads] == ["6120f144", "w1"]
    assert [it.reason for it in loaded.unreadable] == ["uuid '6120f144' is also that of another workload"]


def test_there_is_a_most_of_workloads(tmp_path):
    many = [changed(WORKLOAD, "uuid", f"u{i}") for i in range(MAX_WORKLOADS + 5)]
    loaded = load_source("flashinfer", write_set(tmp_path, DEFINITION, *many))
    assert len(loaded.problems[0].workloads) == MAX_WORKLOADS
    (unreadable,) = loaded.unreadable
    assert unreadable.line == MAX_WORKLOADS + 1


def test_huge_shapes_are_only_read(tmp_path):
    definition = changed(DEFINITION, "axes.H.value", 1 << 48)
    loaded = load_source("flashinfer", write_set(tmp_path, definition))
    assert not loaded.problems
    assert "2**48" in loaded.unreadable[-1].reason


@pytest.mark.parametrize("expression", ["H %% 3", "__import__('os')", "1 / 0", "H / 3", "Q + 1", "2 ** 2 ** 2 ** 99"])
def test_an_axis_is_only_arithmetic(tmp_path, expression):
    loaded = load_source("flashinfer", write_set(tmp_path, changed(DEFINITION, "axes.N.expression", expression)))
    assert not loaded.problems
    assert loaded.unreadable


def test_a_second_definition_of_a_name_is_told(tmp_path):
    write_set(tmp_path)
    (tmp_path / "definitions/again.json").write_text(json.dumps(DEFINITION))
    loaded = load_source("flashinfer", tmp_path)
    assert len(loaded.problems) == 1
    assert [it.reason.partition(",")[0] for it in loaded.unreadable] == ["defines 'mixed_h32' again"]


def test_a_link_may_not_lead_out(tmp_path):
    root = write_set(tmp_path / "set")
    blob = root / "blob/rows.safetensors"
    blob.rename(tmp_path / "rows")
    blob.symlink_to(tmp_path / "rows")
    loaded = load_source("flashinfer", root)
    assert not loaded.problems
    assert "is a link that leaves" in loaded.unreadable[-1].reason


def test_a_link_may_lead_into_the_cache_it_is_a_snapshot_of(tmp_path):
    root = write_set(tmp_path / "snapshots/abc")
    blob = root / "blob/rows.safetensors"
    (tmp_path / "blobs").mkdir()
    blob.rename(tmp_path / "blobs/0123")
    blob.symlink_to(Path("../../../blobs/0123"))
    assert len(load_source("flashinfer", root).problems) == 1


@pytest.mark.parametrize("make", [lambda root: root, lambda root: root / "none"])
def test_a_folder_without_definitions_is_refused(tmp_path, make):
    with pytest.raises(UsageError, match=r"has neither definitions/<kind>/<name>\.json nor") as raised:
        load_source("flashinfer", make(tmp_path))
    assert raised.value.next_step


def test_the_digest_is_of_all_that_decides(tmp_path):
    def digest(folder, *arguments, **files):
        return load_source("flashinfer", write_set(tmp_path / folder, *arguments, **files)).problems[0].digest

    other_reference = changed(DEFINITION, "reference", DEFINITION["reference"] + "\n")
    found = [
        digest("a"),
        digest("b", other_reference),
        digest("c", DEFINITION, changed(WORKLOAD, "axes.M", 7) | {"uuid": "another"}),
        digest("d", DEFINITION, changed(WORKLOAD, "inputs.scale.value", 0.25)),
        digest("e", blob=container(data=bytes(28))),
    ]
    assert len(set(found)) == len(found)
    assert digest("f") == found[0]
