import ast
import json

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import CollectiveKind, Dtype, Language, Status
from kernel_matrix.model.messages import ContractSpec
from kernel_matrix.sources import Origin, load_source
from kernel_matrix.sources.folder import load_candidates
from tests.sources.examples import PROBLEM, REFERENCE, write

SIDE = """
expect = "incorrect_values"
description = "Wrong."
language = "cuda"
entry = "Other"
dtypes = ["fp16"]

[origin]
method = "search"
round = 3
cost_usd = 0.25
"""


def load(root):
    return load_source("folder", root)


def reasons(loaded):
    return [str(item) for item in loaded.unreadable]


def test_reads_a_problem_with_formulas_evaluated(root):
    loaded = load(root)
    (problem,) = loaded.problems
    assert not loaded.unreadable
    assert (problem.id, problem.source, problem.category) == ("half", "folder", "Math")
    assert problem.dtypes == (Dtype.FP32, Dtype.BF16)
    smoke, default = problem.workloads
    assert (smoke.name, smoke.values, smoke.flops) == ("smoke", {}, 32)
    assert (default.values, default.flops) == ({"M": 8, "N": 32}, 256)
    assert default.bytes.keys() == set(Dtype)
    sizes = {
        Dtype.FP64: 8,
        Dtype.TF32: 4,
        Dtype.INT32: 4,
        Dtype.BF16: 2,
        Dtype.FP8_E5M2: 1,
        Dtype.INT8: 1,
        Dtype.BOOL: 1,
    }
    assert {dtype: default.bytes[dtype] for dtype in sizes} == {dtype: 512 * size for dtype, size in sizes.items()}


def test_a_problem_need_not_say_what_it_costs(root):
    kept = [line for line in PROBLEM.splitlines() if not line.startswith(("flops", "bytes"))]
    write(root / "half/problem.toml", "\n".join(kept))
    assert [(w.flops, w.bytes) for w in load(root).problems[0].workloads] == [(None, {}), (None, {})]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("reference.py", ("SCALE = 0.5", "SCALE = 0.25")),
        ("problem.toml", ("M = 8", "M = 16")),
        ("problem.toml", ("[workloads.smoke]", "[workloads.small]")),
        ("problem.toml", ("flops =", "outliers = false\nflops =")),
        ("problem.toml", ("flops =", "mutates_inputs = true\nflops =")),
        ("problem.toml", ("flops =", "random = true\nflops =")),
        ("problem.toml", ("flops =", "tolerance.rtol = 0.1\nflops =")),
    ],
)
def test_the_digest_follows_what_determines_the_answer(root, name, change):
    before = load(root).problems[0].digest
    path = root / "half" / name
    path.write_text(path.read_text().replace(*change))
    assert load(root).problems[0].digest != before


def test_the_digest_does_not_follow_words(root):
    before = load(root).problems[0].digest
    path = root / "half/problem.toml"
    path.write_text(path.read_text().replace("Half of", "One half of"))
    assert load(root).problems[0].digest == before


def test_a_problem_says_that_its_outputs_are_random(root):
    assert load(root).problems[0].random is False
    write(root / "half/problem.toml", PROBLEM.replace("flops =", "random = true\nflops ="))
    assert load(root).problems[0].random is True
    write(root / "half/problem.toml", PROBLEM.replace("flops =", "random = 1\nflops ="))
    (reason,) = reasons(load(root))
    assert "random" in reason


CONTRACT = """
[contract]
kind = "w8a8"
cosine_min = 0.999
relative_l1_max = 0.02
rmse_max = 0.02
snr_db_min = 34
snr_db_max = 50
"""


def test_a_quantised_problem_has_a_contract(root):
    before = load(root).problems[0]
    assert before.contract is None
    write(root / "half/problem.toml", PROBLEM + CONTRACT)
    after = load(root).problems[0]
    assert after.contract == ContractSpec(
        kind="w8a8", cosine_min=0.999, relative_l1_max=0.02, rmse_max=0.02, snr_db_min=34, snr_db_max=50
    )
    assert after.digest != before.digest
    write(root / "half/problem.toml", PROBLEM + CONTRACT.replace("50", "51"))
    assert load(root).problems[0].digest != after.digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('kind = "w8a8"\n', ""), "'kind' is a required property"),
        (("w8a8", "w4a4"), "'w4a4' is not allowed; allowed: w8a8, w4a16"),
        (("cosine_min = 0.999", "cosine_min = 1.5"), "maximum"),
        (("rmse_max", "rsme_max"), "did you mean 'rmse_max'"),
    ],
)
def test_a_contract_that_makes_no_sense_is_named(root, change, words):
    write(root / "half/problem.toml", PROBLEM + CONTRACT.replace(*change))
    (reason,) = reasons(load(root))
    assert words in reason


def test_ranks_are_read_and_count_for_the_digest(root):
    before = load(root).problems[0]
    write(root / "half/problem.toml", PROBLEM.replace("flops =", "ranks = 2\nflops ="))
    after = load(root).problems[0]
    assert (before.ranks, after.ranks) == (1, 2)
    assert after.digest != before.digest


@pytest.mark.parametrize("flag", ["random", "mutates_inputs"])
def test_several_ranks_exclude_what_is_judged_for_one(root, flag):
    write(root / "half/problem.toml", PROBLEM.replace("flops =", f"ranks = 2\n{flag} = true\nflops ="))
    (reason,) = reasons(load(root))
    assert reason.endswith(f"{flag}: cannot be combined with several ranks")


COLLECTIVE = PROBLEM.replace("flops =", "ranks = 4\nflops =").replace(
    "[workloads.smoke]",
    """[collective]
kind = "all_gather"
bytes = "ranks * M * N * itemsize"

[workloads.smoke]""",
)


def test_collective_has_a_size_that_counts_for_the_digest(root):
    write(root / "half/problem.toml", PROBLEM.replace("flops =", "ranks = 4\nflops ="))
    before = load(root).problems[0]
    write(root / "half/problem.toml", COLLECTIVE)
    after = load(root).problems[0]
    assert (before.collective, before.workloads[0].collective_bytes) == (None, {})
    assert after.collective is CollectiveKind.ALL_GATHER
    assert [w.collective_bytes[Dtype.BF16] for w in after.workloads] == [4 * 4 * 8 * 2, 4 * 8 * 32 * 2]
    digests = {before.digest, after.digest}
    for change in (("all_gather", "send"), ('bytes = "ranks *', 'bytes = "2 *')):
        write(root / "half/problem.toml", COLLECTIVE.replace(*change))
        digests.add(load(root).problems[0].digest)
    assert len(digests) == 4


def test_formulas_may_use_the_number_of_ranks(root):
    formulas = PROBLEM.replace('"M * N"', '"M * N / ranks"').replace('"2 * M', '"(ranks + 1) * M')
    found = {}
    for ranks in (1, 2, 4):
        write(root / "half/problem.toml", formulas.replace("flops =", f"ranks = {ranks}\nflops ="))
        smoke = load(root).problems[0].workloads[0]
        found[ranks] = (smoke.flops, smoke.bytes[Dtype.FP32])
    assert found == {1: (32, 256), 2: (16, 384), 4: (8, 640)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("ranks = 4", "ranks = 1"), "collective: needs several ranks"),
        (("all_gather", "all_gathr"), "did you mean 'all_gather'?"),
        (('kind = "all_gather"\n', ""), "'kind' is a required property"),
        (('bytes = "ranks * M * N * itemsize"\n', ""), "'bytes' is a required property"),
        (("ranks * M * N", "rank * M * N"), "collective.bytes: 'rank' is not known"),
        (("ranks * M * N", "-ranks * M * N"), "must not be negative"),
        (("kind =", "size = 1\nkind ="), "collective.size: unknown key; allowed: kind, bytes"),
    ],
)
def test_a_collective_that_makes_no_sense_is_named(root, change, words):
    write(root / "half/problem.toml", COLLECTIVE.replace(*change))
    (reason,) = reasons(load(root))
    assert words in reason


def test_the_call_of_a_library_lies_beside_the_reference(root):
    before = load(root).problems[0]
    assert before.library is None
    write(root / "half/library.py", "class ModelNew: pass\n")
    after = load(root).problems[0]
    assert after.library == root / "half/library.py"
    assert after.digest != before.digest


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("N = 32", "K = 32"), 10, "workloads.default.M: N is computed from it (reference.py:5) and needs a value"),
        (("M = 8", "MM = 8"), 10, "workloads.default.MM: reference.py has no such constant; it has: KIND, M, N, SCALE"),
        (("M = 8", 'M = "8"'), 10, "workloads.default.M: must be int, as in reference.py:4; got '8'"),
        (("N = 32", "KIND = 3\nN = 2"), 11, "workloads.default.KIND: must be str"),
        (('"M * N"', '"M * K"'), 4, "flops: 'K' is not known"),
        (('"M * N"', '"M * N - 1000"'), 4, "flops: is -968 for workload smoke; must not be negative"),
        (('"2 * M * N * itemsize"', '"2 * M * N * itemsiz"'), 5, "did you mean 'itemsize'"),
    ],
)
def test_a_workload_that_does_not_fit_the_reference_is_named(root, change, line, words):
    path = write(root / "half/problem.toml", PROBLEM.replace(*change))
    loaded = load(root)
    assert not loaded.problems
    (reason,) = reasons(loaded)
    assert reason.startswith(f"{path}:{line}: ")
    assert words in reason


def test_a_whole_number_may_replace_a_real_one(root):
    write(root / "half/problem.toml", PROBLEM.replace("M = 8", "SCALE = 2\nM = 8"))
    assert load(root).problems[0].workloads[1].values["SCALE"] == 2


def test_one_bad_file_does_not_hide_the_others(root):
    write(root / "broken/problem.toml", PROBLEM)
    write(root / "broken/reference.py", "class Model:\n")
    write(root / "headless/reference.py", REFERENCE)
    write(root / "half/candidates/odd name.py", "x = 1\n")
    write(root / "half/candidates/renamed.toml", SIDE)
    write(root / "half/candidates/bad.py", "x = 1\n")
    write(root / "half/candidates/bad.toml", 'expect = "wrong"\n')
    loaded = load(root)
    assert [p.id for p in loaded.problems] == ["half"]
    assert [c.id for c in loaded.candidates] == ["half/plain"]
    assert [(u.path.name, u.line) for u in loaded.unreadable] == [
        ("reference.py", 1),
        ("problem.toml", None),
        ("bad.toml", 1),
        ("odd name.py", None),
        ("renamed.toml", None),
    ]


def test_a_candidate_without_side_file_is_read_from_its_source(root):
    (candidate,) = load(root).candidates
    assert (candidate.id, candidate.problem_id, candidate.entry) == ("half/plain", "half", "ModelNew")
    assert (candidate.language, candidate.dtypes, candidate.expect) == (Language.TORCH, (), None)
    assert candidate.origin == Origin()


def test_a_side_file_says_the_rest(root):
    before = load(root).candidates[0].digest
    write(root / "half/candidates/plain.toml", SIDE)
    (candidate,) = load(root).candidates
    assert (candidate.language, candidate.entry, candidate.dtypes) == (Language.CUDA, "Other", (Dtype.FP16,))
    assert (candidate.expect, candidate.description) == (Status.INCORRECT_VALUES, "Wrong.")
    assert candidate.origin == Origin(method="search", round=3, cost_usd=0.25)
    assert candidate.digest != before


def test_a_candidate_that_is_no_python_is_still_a_candidate(root):
    (root / "half/candidates/garbage.py").write_bytes(b"\xff\0(((")
    loaded = load(root)
    assert [c.id for c in loaded.candidates] == ["half/garbage", "half/plain"]
    assert not loaded.unreadable


def test_nothing_is_run(root):
    marker = root / "was_run"
    bomb = f"open({str(marker)!r}, 'w').close()\n"
    write(root / "half/reference.py", bomb + REFERENCE)
    write(root / "half/candidates/plain.py", bomb)
    assert len(load(root).candidates) == 1
    assert not marker.exists()


def test_a_folder_without_problems_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has no problem"):
        load(tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        load(tmp_path / "absent")


def test_candidates_may_be_kept_apart(root, tmp_path_factory):
    apart = tmp_path_factory.mktemp("apart")
    problems = {p.id: p for p in load(root).problems}
    problems["level1/1_x"] = problems["half"]
    write(apart / "half/fast.py", "x = 1\n")
    write(apart / "half/fast.toml", 'origin.model = "m"\n')
    write(apart / "level1/1_x/a.py", "x = 1\n")
    write(apart / "hlaf/lost.py", "x = 1\n")
    candidates, unreadable = load_candidates(apart, problems)
    assert [(c.id, c.problem_id, c.origin.model) for c in candidates] == [
        ("half/fast", "half", "m"),
        ("level1/1_x/a", "level1/1_x", None),
    ]
    (lost,) = unreadable
    assert lost.path == apart / "hlaf"
    assert "did you mean 'half'?" in lost.reason


def test_a_folder_of_candidates_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        load_candidates(tmp_path / "absent", {})


CUDA = """\
__global__ void halve(const float* x, float* y, int n) {}
torch::Tensor run(torch::Tensor x) { return x; }
torch::Tensor other(torch::Tensor x) { return x; }
"""


def facts_of(candidate):
    line = next(line for line in candidate.adapter.splitlines() if line.startswith("FACTS:"))
    return json.loads(ast.literal_eval(line.partition("json.loads(")[2].rstrip(")")))


def native(root):
    (found,) = (candidate for candidate in load(root).candidates if candidate.id == "half/native")
    return found


def test_a_cuda_file_is_a_candidate(root):
    path = write(root / "half/candidates/native.cu", CUDA)
    found = native(root)
    assert (found.id, found.path, found.language) == ("half/native", path, Language.CUDA)
    assert (found.entry, found.defines) == ("ModelNew", "run")
    assert found.code.written() == {"native.cu": CUDA.encode()}
    facts = facts_of(found)
    assert (facts["file"], facts["function"], facts["with_cuda"]) == ("native.cu", "run", True)
    assert facts["sources"] == ["native_binding.cu"]
    assert '#include "native.cu"' in facts["written"]["native_binding.cu"]


def test_a_side_file_speaks_of_a_cuda_file_too(root):
    write(root / "half/candidates/native.cu", CUDA)
    plain = native(root)
    write(root / "half/candidates/native.toml", 'entry = "other"\ndtypes = ["fp16"]\norigin.method = "search"\n')
    found = native(root)
    assert (found.defines, found.dtypes, found.origin) == ("other", (Dtype.FP16,), Origin(method="search"))
    assert facts_of(found)["function"] == "other"
    assert found.digest != plain.digest
    assert facts_of(found)["extension"] != facts_of(plain)["extension"]


def test_the_digest_of_a_cuda_file_follows_its_content(root):
    digests = set()
    for text in (CUDA, CUDA + "// more\n"):
        write(root / "half/candidates/native.cu", text)
        digests.add(native(root).digest)
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("#include <hip/hip_runtime.h>\n" + CUDA, Language.HIP),
        ("#include <hip/hip_runtime.h>\n#include <cuda_runtime.h>\n" + CUDA, Language.CUDA),
    ],
)
def test_hip_is_told_from_cuda(root, text, language):
    write(root / "half/candidates/native.cu", text)
    assert native(root).language is language


def test_a_hip_file_is_compiled_for_a_gpu(root):
    write(root / "half/candidates/native.hip", CUDA)
    found = native(root)
    facts = facts_of(found)
    assert (found.language, facts["with_cuda"], facts["sources"]) == (Language.HIP, True, ["native_binding.hip"])


def test_a_hip_file_is_not_of_another_vendor(root):
    write(root / "half/candidates/native.hip", CUDA)
    write(root / "half/candidates/native.toml", 'language = "cuda"\n')
    (reason,) = reasons(load(root))
    assert "native.hip cannot be cuda; allowed: hip" in reason


def test_a_cuda_file_that_binds_itself_is_compiled_as_it_is(root):
    write(root / "half/candidates/native.cu", CUDA + "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n")
    facts = facts_of(native(root))
    assert (facts["sources"], facts["written"]) == (["native.cu"], {})


@pytest.mark.parametrize(
    ("side", "words"),
    [
        ('description = "x"\nentry = "forward"\n', "bad.toml:2: entry: bad.cu does not contain 'forward'"),
        ('language = "triton"\n', "bad.toml:1: language: bad.cu cannot be triton; allowed: cuda, hip"),
        ('language = "cude"\n', "bad.toml:1: language: 'cude' is not allowed; allowed: triton, cuda, torch, cute_dsl,"),
        ("entry = 3\n", "bad.toml:1: entry: 3 is not of type 'string'"),
        ("entry = \n", "bad.toml:1: not valid TOML"),
        ('expct = "passed"\n', "bad.toml:1: expct: unknown key"),
    ],
)
def test_a_malformed_side_file_is_named_and_the_rest_goes_on(root, side, words):
    write(root / "half/candidates/bad.cu", CUDA)
    write(root / "half/candidates/bad.toml", side)
    write(root / "half/candidates/good.cu", CUDA)
    loaded = load(root)
    assert [candidate.id for candidate in loaded.candidates] == ["half/good", "half/plain"]
    (reason,) = reasons(loaded)
    assert words in reason


def test_of_two_files_with_one_name_neither_is_taken(root):
    for name in ("twice.py", "twice.cu", "good.py"):
        write(root / "half/candidates" / name, CUDA if name.endswith(".cu") else "x = 1\n")
    write(root / "half/candidates/twice.toml", 'description = "Whose?"\n')
    loaded = load(root)
    assert [candidate.id for candidate in loaded.candidates] == ["half/good", "half/plain"]
    first, second = reasons(loaded)
    assert first.endswith("twice.cu: twice.py beside it has the same name, so both have the same id; rename one")
    assert "twice.py: twice.cu beside it has the same name" in second


def test_a_side_file_without_a_candidate_is_named(root):
    write(root / "half/candidates/lost.toml", 'expect = "passed"\n')
    (reason,) = reasons(load(root))
    assert reason.endswith("lost.toml: describes lost.py, but neither lost.py, lost.cu nor lost.hip is beside it")


def test_cuda_files_can_be_kept_apart(root, tmp_path):
    problems = {problem.id: problem for problem in load(root).problems}
    write(tmp_path / "apart/half/plain.cu", CUDA)
    write(tmp_path / "apart/haf/plain.cu", CUDA)
    (found,), (refused,) = load_candidates(tmp_path / "apart", problems)
    assert found.id == "half/plain"
    assert "has candidates for 'haf', which is not a known problem; did you mean 'half'?" in str(refused)


def test_folder_memory_is_by_dtype_and_changes_no_digest(root):
    (before,) = load(root).problems
    write(root / "half/problem.toml", PROBLEM.replace("flops =", 'memory = "4 * itemsize + 1"\nflops ='))
    (declared,) = load(root).problems
    assert before.workloads[0].memory == {}
    assert [declared.workloads[0].memory[dtype] for dtype in (Dtype.FP32, Dtype.FP16)] == [17, 9]
    assert declared.digest == before.digest


HELD_OUT = PROBLEM + "\n[workloads.odd]\nheld_out = true\nM = 3\nN = 7\n"


def test_held_out_workload_is_none_to_select(root):
    shown = load(root).problems[0]
    write(root / "half/problem.toml", HELD_OUT)
    (problem,) = load(root).problems
    assert [workload.name for workload in problem.shown_workloads] == ["smoke", "default"]
    (odd,) = problem.held_out_workloads
    assert (odd.name, odd.values, odd.flops) == ("odd", {"M": 3, "N": 7}, 21)
    write(root / "half/problem.toml", HELD_OUT.replace("true", "false"))
    (told,) = load(root).problems
    assert len({shown.digest, problem.digest, told.digest}) == 3


def test_digest_without_held_out_workloads_is_as_before(root):
    before = load(root).problems[0]
    assert all("held_out" not in workload.digest_facts for workload in before.workloads)
    write(root / "half/problem.toml", PROBLEM.replace("M = 8", "held_out = false\nM = 8"))
    assert load(root).problems[0].digest == before.digest


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("held_out = true", "held_out = 1"), 14, "workloads.odd.held_out: 1 is not of type 'boolean'"),
        (
            ("M = 3\nN = 7", "M = 8\nN = 32"),
            14,
            "workloads.odd.held_out: a workload that is shown, or reference.py, has",
        ),
        (("M = 3\nN = 7", ""), 14, "workloads.odd.held_out: a workload that is shown, or reference.py, has"),
        (("M = 3", "MM = 3"), 15, "workloads.odd.MM: reference.py has no such constant"),
        (
            (HELD_OUT[HELD_OUT.index("[workloads.smoke]") : HELD_OUT.index("[workloads.odd]")], ""),
            7,
            "workloads: all have held_out = true; candidates must be shown at least one",
        ),
    ],
)
def test_held_out_workload_that_cannot_be_is_named(root, change, line, words):
    path = write(root / "half/problem.toml", HELD_OUT.replace(*change))
    loaded = load(root)
    assert not loaded.problems
    (reason,) = reasons(loaded)
    assert reason.startswith(f"{path}:{line}: ")
    assert words in reason
