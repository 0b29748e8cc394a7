import pytest

from kernel_matrix.sources.formula import FormulaError, evaluate

NAMES = {"M": 3, "N": 5, "RATE": 0.5, "itemsize": 4}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("2 * M * N", 30),
        ("(M + N) * itemsize - 1", 31),
        ("N // 2 + N / 2", 4.5),
        ("-M + 2 ** N", 29),
        ("min(M, N, 4) * max(M, N)", 15),
        (" RATE * 1e3 ", 500),
    ],
)
def test_evaluates_arithmetic(formula, value):
    assert evaluate(formula, NAMES) == value


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("2 * m", "'m' is not known; known: M, N, RATE, itemsize"),
        ("item_size", "did you mean 'itemsize'?"),
        ("M *", "is not a formula"),
        ("M if N else 2", "is not allowed"),
        ("__import__('os').system('true')", "cannot be called; only min and max can"),
        ("().__class__", "is not allowed"),
        ("max(*[1, 2])", "is not allowed"),
        ("min(M, key=N)", "is not allowed"),
        ("True", "is not allowed"),
        ("M / (N - 5)", "divides by zero"),
        ("9 ** 9 ** 9 ** 9", "has no finite value"),
        ("(0 - 1) ** 0.5", "has no finite value"),
        ("1e308 * 10", "has no finite value"),
        ("-" * 5000 + "1", "nested too deeply|is not a formula"),
    ],
)
def test_says_what_is_wrong(formula, words):
    with pytest.raises(FormulaError, match=words.replace("(", r"\(")):
        evaluate(formula, NAMES)
