from dataclasses import fields

import pytest

from kernel_matrix.json_schemas import load_schema
from kernel_matrix.model.enums import Dtype, Language, Status
from kernel_matrix.sources import Origin
from kernel_matrix.sources.document import MAX_BYTES, UnreadableFileError, line_of, read_bytes, read_document
from tests.sources.examples import PROBLEM, write


def test_a_document_that_fits_its_schema_is_read(tmp_path):
    document = read_document(write(tmp_path / "problem.toml", PROBLEM), "problem")
    assert document.values["workloads"] == {"smoke": {}, "default": {"M": 8, "N": 32}}


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("category =", "categry ="), 1, "categry: unknown key; allowed: category.*did you mean 'category'"),
        (('"Math"', '"Maths"'), 1, "category: 'Maths' is not allowed; .*did you mean 'Math'"),
        (('"bf16"]', '"bf61"]'), 2, "dtypes.1: 'bf61' is not allowed; .*did you mean 'bf16'"),
        (("M = 8", "M = [8]"), 10, r"workloads.default.M: \[8\] is not of type"),
        (("[workloads.smoke]", "[workloads.Smoke]"), 7, "workloads.Smoke: 'Smoke' does not match"),
        (("flops", "flop"), 4, "flop: unknown key; .*did you mean 'flops'"),
        (("flops = ", "flops = 2 *"), 4, "not valid TOML"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path, change, line, words):
    path = write(tmp_path / "problem.toml", PROBLEM.replace(*change))
    with pytest.raises(UnreadableFileError, match=words) as refused:
        read_document(path, "problem")
    assert refused.value.unreadable.line == line
    assert str(refused.value).startswith(f"{path}:{line}: ")


def test_text_in_another_encoding_is_refused_with_its_line(tmp_path):
    path = tmp_path / "problem.toml"
    path.write_bytes(b'category = "Math"\ndescription = "\xe9"\n')
    with pytest.raises(UnreadableFileError, match=":2: is not UTF-8 text"):
        read_document(path, "problem")


def test_lines_are_found_for_dotted_and_quoted_keys():
    text = 'a.b = 1\n["x"]\n"y" = 2\nz = 3\n[x.w]\n'
    assert [line_of(text, keys) for keys in (("a", "b"), ("x", "y"), ("x", "w"), ("x", "nothing"), ())] == [
        1,
        3,
        5,
        2,
        1,
    ]


def test_only_regular_files_of_a_sane_size_are_read(tmp_path):
    with pytest.raises(UnreadableFileError, match="no such file"):
        read_bytes(tmp_path / "absent.py")
    with pytest.raises(UnreadableFileError, match="not a regular file"):
        read_bytes(tmp_path)
    large = tmp_path / "large.py"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(UnreadableFileError, match="is larger than 4 MiB"):
        read_bytes(large)


def test_the_schemas_know_the_same_words_as_the_code():
    problem, candidate = load_schema("problem"), load_schema("candidate")["properties"]
    dtypes = [dtype.value for dtype in Dtype]
    assert problem["$defs"]["dtypes"]["items"]["enum"] == dtypes
    assert candidate["dtypes"]["items"]["enum"] == dtypes
    assert candidate["language"]["enum"] == [language.value for language in Language]
    assert candidate["expect"]["enum"] == [status.value for status in Status]
    assert list(candidate["origin"]["properties"]) == [field.name for field in fields(Origin)]
