from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from plan.nouns import candidate, problem

from kernel_matrix.errors import ConfigError, UsageError
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.model.enums import Dtype
from kernel_matrix.plan import load_selection, make_plan
from kernel_matrix.sources import LoadedSource, Origin, UnreadableItem, Workload

ROOT = Path(__file__).parents[2]

AXES = """\
name = "small"
dtypes = ["fp32"]
[[gpus]]
name = "cpu"
vendor = "cpu"
[[toolchains]]
name = "cpu"
torch = "2.13.0"
triton = "3.7.1"
"""

SHELF = LoadedSource(
    problems=(
        problem("softmax", level=1, tags=("row",)),
        problem("relu", category="activation", level=2, workloads=(Workload(name="default"), Workload(name="large"))),
        problem("matmul", category="gemm"),
    ),
    candidates=(
        candidate("softmax/good"),
        candidate("softmax/slow", origin=Origin(method="by hand", sample=3)),
        candidate("relu/good"),
        candidate("matmul/good"),
    ),
)


@pytest.fixture
def select(tmp_path):
    """Selects from a real matrix file with the given tables; folders are read from the given shelves."""

    def made(text="", shelf=SHELF, problems='[[problems]]\nsource = "folder"\npath = "problems"', apart=None):
        for folder in ("problems", "more", "apart"):
            (tmp_path / folder).mkdir(exist_ok=True)
        path = tmp_path / "matrix.toml"
        path.write_text(AXES + dedent(problems) + "\n" + dedent(text))
        shelves = shelf if isinstance(shelf, dict) else {"problems": shelf, "more": LoadedSource()}
        return load_selection(
            load_matrix(path),
            load=lambda _source, folder: shelves[folder.name],
            load_candidates=lambda _source, _folder, _known: (apart or (), ()),
        )

    return made


def sets(*lines):
    return "\n".join(('[[problems]]\nsource = "folder"\npath = "problems"', *lines))


def ids(selection):
    return {item.problem.id: [c.id.rpartition("/")[2] for c in item.candidates] for item in selection.problems}


def faults(select, *args, **kwargs):
    with pytest.raises(ConfigError) as caught:
        select(*args, **kwargs)
    return caught.value.problems


def test_everything_is_selected_by_default_but_no_reference(select):
    assert ids(select()) == {"softmax": ["good", "slow"], "relu": ["good"], "matmul": ["good"]}


@pytest.mark.parametrize(
    ("lines", "chosen"),
    [
        (['select = ["soft*", "matmul"]'], ["softmax", "matmul"]),
        (["levels = [1, 2]"], ["softmax", "relu"]),
        (['categories = ["gemm", "activation"]'], ["relu", "matmul"]),
        (['tags = ["row"]'], ["softmax"]),
        (["levels = [1, 2]", 'categories = ["activation"]'], ["relu"]),
    ],
)
def test_problems_must_satisfy_every_condition(select, lines, chosen):
    assert list(ids(select(problems=sets(*lines)))) == chosen


def test_problem_without_selected_workloads_is_left_out(select):
    selection = select(problems=sets('workloads = ["smoke", "default"]'))
    assert {s.problem.id: [w.name for w in s.workloads] for s in selection.problems} == {
        "softmax": ["smoke", "default"],
        "relu": ["default"],
        "matmul": ["smoke", "default"],
    }
    left_out = select(problems=sets('workloads = ["large"]'), text='[[candidates]]\nselect = "relu/*"')
    assert list(ids(left_out)) == ["relu"]
    assert "problem softmax is left out: it has no large workload" in left_out.warnings


def test_references_are_selected_only_by_globs_that_name_them(select):
    text = '[[candidates]]\nselect = ["relu/*", "softmax/@reference"]'
    selection = select(text)
    assert ids(selection) == {"softmax": ["@reference"], "relu": ["good"], "matmul": []}
    assert "selected problems without a candidate: matmul" in selection.warnings


def test_a_name_that_only_ends_in_reference_is_a_candidate(select):
    shelf = LoadedSource(problems=(problem("softmax"),), candidates=(candidate("softmax/my@reference"),))
    assert ids(select(shelf=shelf)) == {"softmax": ["my@reference"]}


def test_a_set_fills_the_gaps_of_an_origin(select):
    text = '[[candidates]]\nselect = ["*", "*/@reference"]\nmethod = "agent"\nmodel = "m1"'
    found = {c.id: c.origin for item in select(text).problems for c in item.candidates}
    assert found["softmax/good"] == Origin(method="agent", model="m1")
    assert found["softmax/slow"] == Origin(method="by hand", model="m1", sample=3)
    assert found["softmax/@reference"] == Origin(method="reference")


def test_candidates_may_be_kept_apart(select):
    text = '[[candidates]]\npath = "apart"\n[[candidates]]\nselect = "relu/*"'
    apart = (candidate("softmax/generated", path=Path("/apart/softmax/generated.py")),)
    assert ids(select(text, apart=apart)) == {"softmax": ["generated"], "relu": ["good"], "matmul": []}


def test_unreadable_files_are_carried_along(select):
    bad = UnreadableItem(path=Path("problems/bad"), reason="no reference.py")
    selection = select(shelf=replace(SHELF, unreadable=(bad,)))
    assert selection.unreadable == (bad,)
    assert len(selection.problems) == 3


def test_faults_come_with_what_could_not_be_read(select):
    bad = UnreadableItem(path=Path("problems/bad/problem.toml"), reason="category: missing", line=3)
    with pytest.raises(ConfigError) as caught:
        select('select = "bad"', shelf=replace(SHELF, unreadable=(bad,)))
    fault, unread = caught.value.problems
    assert "'bad' matches no problem (1 files cannot be read)" in fault
    assert unread == "not read: problems/bad/problem.toml:3: category: missing"


def test_the_same_content_twice_is_a_warning(select):
    twins = (candidate("softmax/a", digest="same"), candidate("softmax/b", digest="same"))
    selection = select(shelf=replace(SHELF, candidates=(*SHELF.candidates, *twins)))
    assert selection.warnings == ("candidates softmax/a and softmax/b have the same content",)


def test_a_candidate_selected_twice_counts_once(select):
    selection = select('[[candidates]]\nselect = "*"\n[[candidates]]\nselect = "relu/*"\nmethod = "other"')
    assert ids(selection)["relu"] == ["good"]
    assert selection.warnings == ("candidate relu/good is selected twice; the settings in candidates[1] are ignored",)


@pytest.mark.parametrize(
    ("lines", "key", "words"),
    [
        (['select = ["softmax", "sotmax"]'], "problems[0].select[1]", "'sotmax' matches no problem; there are: matmul"),
        (["levels = [3]"], "problems[0].levels[0]", "3 matches no level; there are: 1, 2"),
        (['categories = ["gem"]'], "problems[0].categories[0]", "did you mean 'gemm'?"),
        (['tags = ["rows"]'], "problems[0].tags[0]", "did you mean 'row'?"),
        (['workloads = ["smok"]'], "problems[0].workloads[0]", "did you mean 'smoke'?"),
        (["levels = [1]", 'categories = ["gemm"]'], "problems[0]", "selects nothing"),
    ],
)
def test_empty_selection_names_its_place_and_the_closest_name(select, tmp_path, lines, key, words):
    (fault,) = faults(select, problems=sets(*lines))
    number = (AXES + sets(*lines)).splitlines().index(lines[0] if "[0]." in key else "[[problems]]") + 1
    assert fault.startswith(f"{tmp_path / 'matrix.toml'}:{number}:")
    assert f" {key}: " in fault
    assert words in fault


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ('[[candidates]]\nselect = ["softmax/god"]', "candidates[0].select[0]", "did you mean 'softmax/good'?"),
        ('[[candidates]]\nselect = ["@reference"]', "candidates[0].select[0]", "matches no candidate"),
        ('[[exclude]]\nproblem = "mamtul"\nreason = "x"', "exclude[0].problem[0]", "did you mean 'matmul'?"),
        ('[[exclude]]\ncategory = ["gemm", "y"]\nreason = "x"', "exclude[0].category[1]", "'y' matches no category"),
        ('[[include]]\ncandidate = "y"\ndtypes = ["fp64"]\nreason = "x"', "include[0].candidate[0]", "matches no"),
        (
            '[[override]]\nmatch.problem = "y"\nworkloads = "large"',
            "override[0].match.problem[0]",
            "matches no problem",
        ),
        ('[[override]]\nmatch.gpu = "*"\nworkloads = "larg"', "override[0].workloads[0]", "did you mean 'large'?"),
    ],
)
def test_candidates_and_rules_must_match_something_too(select, text, key, words):
    (fault,) = faults(select, text)
    assert f" {key}: " in fault
    assert words in fault


def test_rules_may_speak_of_what_is_not_selected(select):
    text = '[[exclude]]\nproblem = "matmul"\nreason = "x"\n[[exclude]]\ncandidate = "*/@reference"\nreason = "y"'
    assert list(ids(select(text, problems=sets('select = "relu"')))) == ["relu"]


def test_all_faults_are_told_at_once_in_the_order_of_the_file(select):
    text = '[[candidates]]\nselect = ["y/*"]\n[[exclude]]\nproblem = "z"\nreason = "x"'
    found = faults(select, text, problems=sets('select = ["x", "relu"]', "levels = 7"))
    assert [fault.split()[1] for fault in found] == [
        "problems[0].select[0]:",
        "problems[0].levels[0]:",
        "exclude[0].problem[0]:",
    ]


def test_an_id_that_two_files_claim_is_refused(select):
    other = replace(SHELF, candidates=(), problems=(problem("relu", path=Path("/more/relu/reference.py")),))
    text = sets() + '\n[[problems]]\nsource = "folder"\npath = "more"'
    (fault,) = faults(select, problems=text, shelf={"problems": SHELF, "more": other})
    assert "problems[1]: problem id 'relu' is claimed by /problems/relu/reference.py and /more/relu" in fault


def test_unreadable_folder_is_reported_with_other_faults(tmp_path):
    def load(_source, folder):
        if folder.name == "more":
            raise UsageError(f"{folder} holds no problem")
        return SHELF

    for folder in ("problems", "more"):
        (tmp_path / folder).mkdir()
    text = sets('select = "relx"') + '\n[[problems]]\nsource = "folder"\npath = "more"\n'
    (tmp_path / "matrix.toml").write_text(AXES + text)
    with pytest.raises(ConfigError) as caught:
        load_selection(load_matrix(tmp_path / "matrix.toml"), load=load)
    assert [fault.split()[1] for fault in caught.value.problems] == ["problems[0].select[0]:", "problems[1].path:"]


def test_real_folders_are_read(tmp_path, facts):
    (tmp_path / "apart" / "relu").mkdir(parents=True)
    (tmp_path / "apart" / "relu" / "mine.py").write_text("class ModelNew:\n    pass\n")
    (tmp_path / "matrix.toml").write_text(
        f'{AXES}[[problems]]\nsource = "folder"\npath = "{ROOT / "problems"}"\nselect = ["relu", "softmax"]\n'
        '[[candidates]]\npath = "apart"\nselect = "relu/*"\n[[candidates]]\nselect = "*/@reference"\n'
    )
    matrix = load_matrix(tmp_path / "matrix.toml")
    selection = load_selection(matrix)
    assert ids(selection) == {"relu": ["mine", "@reference"], "softmax": ["@reference"]}
    cells = list(make_plan(matrix, selection, facts).cells())
    assert [cell.dtype for cell in cells] == [Dtype.FP32] * 3
    assert len({cell.id for cell in cells}) == 3


def test_held_out_workloads_cannot_be_selected(select):
    workloads = (Workload(name="smoke"), Workload(name="secret", held_out=True))
    shelf = replace(SHELF, problems=(problem("softmax", workloads=workloads), *SHELF.problems[1:]))
    selection = select(shelf=shelf)
    assert [workload.name for workload in selection.problems[0].workloads] == ["smoke"]
    with pytest.raises(ConfigError, match=r"problems\[0\]\.workloads\[0\]"):
        select(shelf=shelf, problems=sets('workloads = "secret"'))


SEVERAL = replace(
    SHELF,
    problems=(problem("all_reduce", source="other", ranks=2), problem("softmax")),
    candidates=(candidate("all_reduce/good"), candidate("softmax/good")),
)


def test_each_number_of_ranks_is_a_problem_with_its_candidates(select):
    text = '[[candidates]]\n[[candidates]]\nselect = "*/@reference"\n'
    once = select(text, shelf=SEVERAL)
    several = select(text, shelf=SEVERAL, problems=sets("ranks = [2, 4]", 'workloads = "smoke"'))
    assert [(one.problem.id, one.problem.ranks) for one in once.problems] == [("all_reduce", 2), ("softmax", 1)]
    found = [(one.problem.id, one.problem.ranks, len(one.candidates)) for one in several.problems]
    assert found == [("all_reduce", 2, 2), ("all_reduce", 4, 2), ("softmax", 1, 2)]
    own, more, alone = several.problems
    assert (own.problem, alone.problem) == (once.problems[0].problem, once.problems[1].problem)
    assert more.problem.digest not in ("", own.problem.digest)
    assert more.candidates[1].digest == more.problem.digest
    assert [workload.name for workload in more.workloads] == ["smoke"]


def test_cells_of_other_ranks_have_other_ids(select, plan):
    once, several = (select(shelf=SEVERAL, problems=sets(*lines)) for lines in ((), ("ranks = [2, 4]",)))
    before, after = (list(plan(*selection.problems).cells()) for selection in (once, several))
    assert {cell.id for cell in before} < {cell.id for cell in after}
    assert len({cell.id for cell in after}) == len(after)
    assert {cell.problem.ranks for cell in after} == {1, 2, 4}
    assert all(cell.workloads == cell.problem.shown_workloads for cell in after)


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ("4", "changes nothing: each selected problem is one of one rank"),
        ("1", "must be at least 2"),
        ("[2, 9]", "must be at most 8"),
        ("[2, 2]", "twice"),
    ],
)
def test_ranks_that_no_problem_can_have_are_a_fault(select, ranks, said):
    (fault,) = faults(select, problems=sets('select = "softmax"', f"ranks = {ranks}"))
    assert said in fault
    assert "problems[0].ranks" in fault


def test_problem_unreadable_with_other_ranks_is_a_fault(select):
    shelf = replace(SEVERAL, problems=(problem("all_reduce", ranks=2), *SEVERAL.problems[1:]))
    (fault,) = faults(select, shelf=shelf, problems=sets("ranks = [2, 4]"))
    assert "problems[0].ranks: /problems/all_reduce/problem.toml" in fault
