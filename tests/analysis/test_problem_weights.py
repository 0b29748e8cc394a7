"""Files of weights: what they give, and what is said of wrong ones."""

import polars as pl
import pytest

from kernel_matrix.analysis.problem_weights import ProblemWeights, read_weights
from kernel_matrix.errors import UsageError

KNOWN = pl.DataFrame({"problem": ["softmax", "matmul", "gelu"], "category": ["Reduce", "MatrixMultiply", None]})


@pytest.fixture
def read(tmp_path):
    path = tmp_path / "weights.toml"

    def of(text):
        path.write_text(text, encoding="utf-8")
        return read_weights(path)

    return of


def test_read_weights_problem_counts_before_category(read):
    found = read("default = 0.5\n[problem]\nsoftmax = 2\n[category]\nReduce = 7\nMatrixMultiply = 3\n")
    assert found.of(KNOWN).to_list() == [2.0, 3.0, 0.5]


def test_problem_weights_are_equal_without_a_file():
    assert ProblemWeights().of(KNOWN).to_list() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("softmax = 2", "unknown key 'softmax'"),
        ("", "gives no weight"),
        ("[problem]\nsoftmax = -1", "problem.softmax is -1, not a number from 0 on"),
        ("[problem]\nsoftmax = nan", "problem.softmax is nan"),
        ("[problem]\nsoftmax = true", "problem.softmax is True"),
        ("[problem]\nsoftmax = 'much'", "problem.softmax is 'much'"),
        ("[problem]\na.b = 1", "problem.a is a table; quote a name with a dot"),
        ("problem = 3", "problem is not a table of names with weights"),
        ("default = inf", "default is inf"),
        ("[problem", "not valid TOML"),
    ],
)
def test_read_weights_wrong_file_says_what_is_wrong(read, text, said):
    with pytest.raises(UsageError, match=r"weights\.toml") as caught:
        read(text)
    assert said in str(caught.value)


def test_read_weights_missing_file_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_weights(tmp_path / "none.toml")


def test_check_names_lists_unknown_and_nearest():
    weights = ProblemWeights(problem={"softmaxx": 1.0, "gelu": 1.0})
    with pytest.raises(UsageError, match="no problem named 'softmaxx'") as caught:
        weights.check_names(KNOWN, "w.toml")
    assert "The nearest: softmax." in str(caught.value)
    with pytest.raises(UsageError, match="no category named 'Losses'"):
        ProblemWeights(category={"Losses": 1.0}).check_names(KNOWN, "w.toml")
    ProblemWeights(problem={"gelu": 2.0}, category={"Reduce": 0.0}).check_names(KNOWN, "w.toml")
