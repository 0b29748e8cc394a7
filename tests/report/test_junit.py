"""JUnit XML of a comparison."""

from xml.etree import ElementTree as ET

import pytest

from kernel_matrix.analysis.compare import compare
from kernel_matrix.report.junit import comparison_junit
from tests.analysis.made import SLOWER, STEADY, cells, failed, timed


def suite_of(base, new):
    return ET.fromstring(comparison_junit(compare(cells(base), cells(new)))).find("testsuite")


@pytest.mark.parametrize(
    ("base", "new", "kind", "said"),
    [
        (timed(STEADY), timed(SLOWER), "failure", "regression: 0.1 µs → 0.105 µs, +5.0 %"),
        (timed(STEADY), [failed()], "failure", "broke: crashed: signal 11"),
        (timed(STEADY), [failed(status="gpu_lost", fault="infra")], "error", "inconclusive: new: gpu_lost"),
        (timed(STEADY), timed([95.0, 105.0]), "skipped", "inconclusive: the interval is wider than the margin"),
        (timed(STEADY), [], "skipped", "missing: in base only"),
        (timed(STEADY), timed(STEADY), None, None),
        (timed(SLOWER), timed(STEADY), None, None),
        ([failed()], timed(STEADY), None, None),
    ],
)
def test_a_cell_is_a_case(base, new, kind, said):
    suite = suite_of(base, new)
    (case,) = suite.findall("testcase")
    assert (case.get("classname"), case.get("name")) == ("h200.cu130", "softmax [default] triton_row fp32")
    counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    plural = {"failure": "failures", "error": "errors", "skipped": "skipped"}
    assert counts == {"tests": 1, "failures": 0, "errors": 0, "skipped": 0} | ({plural[kind]: 1} if kind else {})
    outcomes = [element for element in case if element.tag != "system-out"]
    assert [element.tag for element in outcomes] == ([kind] if kind else [])
    if kind:
        assert outcomes[0].get("message").startswith(said)


def test_what_no_xml_may_hold_does_not_spoil_the_document():
    message = "\x00\x1b[2J ]]> <b>&amp;\ufffe größe"
    one = {"candidate": 'softmax/<a href="x">', "gpu": "h\x00200"}
    suite = suite_of(timed(STEADY, **one), [failed(message=message, **one)])
    (case,) = suite.findall("testcase")
    assert case.get("classname") == r"h\x00200.cu130"
    assert '<a href="x">' in case.get("name")
    assert "]]> <b>&amp;" in case.find("failure").text
    assert "größe" in case.find("failure").text


def test_evidence_and_notes_are_there():
    suite = suite_of(timed(STEADY), timed(SLOWER))
    assert "95 % interval +" in suite.find("testcase/failure").text
    assert "the SM clock is unknown" in suite.find("system-out").text
    assert "margin 1 %" in suite.find("properties/property[@name='rules']").get("value")
