"""Untrusted JSON documents: their faults with line numbers."""

import pytest

from kernel_matrix.sources.json_files import BadValueError, JsonFile, JsonNode, shown_keys
from kernel_matrix.untrusted_json import MAX_BYTES
from tests.results.importing.made import put


def reasons(path):
    file = JsonFile(path)
    documents = [node.value for node in file.documents()]
    return documents, [(one.line, one.reason) for one in file.refused()]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("", 1, "not valid JSON: Expecting value"),
        ('{"a": 1,\n "b": }', 2, "not valid JSON: Expecting value"),
        (b'{"a": 1,\n "b": "\xff"}', 2, "is not UTF-8 text"),
        ("[" * 200_000, 1, "is nested too deeply"),
        ('{"a": 1,\n "b": 2,\n "a": 3}', 3, "one object has the key 'a' twice"),
        ('{"a": ' + "9" * 5000 + "}", 1, "not valid JSON: Exceeds the limit"),
    ],
)
def test_what_is_no_document_says_why_and_where(tmp_path, content, line, reason):
    with pytest.raises(BadValueError) as refused:
        JsonFile(put(tmp_path / "a.json", content))
    assert (refused.value.line, str(refused.value)[: len(reason)]) == (line, reason)


def test_a_file_of_100_mb_is_not_read(tmp_path):
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(BadValueError, match=f"is larger than {MAX_BYTES >> 20} MiB"):
        JsonFile(path)


def test_of_lines_each_counts_for_itself(tmp_path):
    path = put(tmp_path / "a.jsonl", b'{"a": 1}\n{"a": \n\n{"b": "\xff"}\n{"a": 2}')
    documents, refused = reasons(path)
    assert documents == [{"a": 1}, {"a": 2}]
    assert refused == [(2, "not valid JSON: Expecting value"), (4, "is not UTF-8 text")]


def test_a_line_without_end_is_passed_over_and_the_next_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.truncate(100 << 20)
        file.seek(0, 2)
        file.write(b'\n{"a": 1}\n')
    assert reasons(path) == ([{"a": 1}], [(1, "is longer than 16 MiB")])


def test_lines_are_known_by_content_too(tmp_path):
    assert reasons(put(tmp_path / "a.json", '{"a": 1}\n{"a": 2}\n')) == ([{"a": 1}, {"a": 2}], [])
    assert JsonFile(put(tmp_path / "b.json", '{"a": 1}\n')).by_line is False


@pytest.mark.parametrize(
    ("value", "method", "reason"),
    [
        ("3", "number", "must be a number; got a string"),
        (True, "number", "must be a number; got true or false"),
        (float("nan"), "number", "must be a finite number; got nan"),
        (10**400, "number", "is too large a number"),
        (-1, "amount", "must not be negative; got -1"),
        (1.5, "count", "must be a whole number"),
        (2**40, "count", "must be a whole number"),
        (3, "text", "must be a string; got a number"),
        (1, "truth", "must be true or false; got a number"),
    ],
)
def test_values_of_another_type_are_faults(value, method, reason):
    with pytest.raises(BadValueError) as refused:
        getattr(JsonNode(value, ("a", 0)), method)()
    assert str(refused.value).startswith(f"a.0: {reason}")


def test_a_number_where_a_list_is_due_and_a_missing_key(tmp_path):
    with pytest.raises(BadValueError, match="must be a list; got a number"):
        list(JsonNode(3).elements())
    with pytest.raises(BadValueError, match="lacks 'mean'"):
        JsonNode({})["mean"]


def test_faults_are_found_on_their_lines_whatever_is_around_them(tmp_path):
    text = '{\n "x": {"mean": 1, "é\\"": [1,\n  {"mean":\n    2}]},\n\n "mean": {"x": [], "y": {"mean": 3}}\n}'
    file = JsonFile(put(tmp_path / "a.json", text))
    wanted = {("x", 'é"', 1, "mean"): 3, ("mean", "y", "mean"): 6, ("x", 'é"', 0): 2, ("mean", "z"): 6, (): 1}
    for keys in wanted:
        list(file.each([JsonNode(0, keys)], lambda node: JsonNode(-1, node.keys).amount()))
    assert sorted(one.line for one in file.refused()) == sorted(wanted.values())


def test_surrogates_are_escaped_and_characters_kept(tmp_path):
    text = '{"\\uDFFF": ["a\\ud800", "\\ud83d\\ude00"],\n "\\udc00": -1}'
    file = JsonFile(put(tmp_path / "a.json", text))
    (document,) = file.documents()
    assert document.value == {"\\udfff": ["a\\ud800", "😀"], "\\udc00": -1}
    list(file.each([document["\\udc00"]], JsonNode.amount))
    assert file.refused()[0].line == 2


def test_what_a_document_starts_with():
    assert shown_keys({str(n): 0 for n in range(9)}) == "its keys are 0, 1, 2, 3, 4, 5, …"
    assert (shown_keys([1]), shown_keys({}), shown_keys(3)) == ("it is a list of 1", "it is empty", "it is a number")
