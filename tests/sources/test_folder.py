import pytest

from runner.core.messages import ContractSpec
from runner.core.vocab import Dtype, Language, Status
from runner.errors import UsageError
from runner.sources import Origin, load_source
from runner.sources.folder import load_candidates
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
    with pytest.raises(UsageError, match="holds no problem"):
        load(tmp_path)
    with pytest.raises(UsageError, match="is no folder"):
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
    with pytest.raises(UsageError, match="is no folder"):
        load_candidates(tmp_path / "absent", {})
