"""Failures grouped by reason."""

from kernel_matrix.analysis.outcomes import outcomes
from kernel_matrix.report.failure_groups import group_failures
from tests.analysis.made import cell, cells


def of(*rows):
    return group_failures(outcomes(cells(rows)).collect())


def failed(**columns):
    return cell(**{"status": "incorrect_values", "stage": "verify", "fault": "candidate", **columns})


def test_messages_that_differ_in_numbers_are_one_reason():
    found = of(
        failed(candidate="a", message="output 0: 12 of 4096 beyond 1.5e-3, at 0xdead"),
        failed(candidate="b", message="output 1: 4,000 of 4096 beyond -2, at 0xbeef", gpu="h100"),
    )
    assert found.select("reason", "outcomes", "candidates").rows() == [("output #: # of # beyond #, at #", 2, 2)]
    assert found["gpus"].to_list() == [["h100", "h200"]]
    assert found["example"].item() in (
        "output 0: 12 of 4096 beyond 1.5e-3, at 0xdead",
        "output 1: 4,000 of 4096 beyond -2, at 0xbeef",
    )


def test_numbers_inside_names_stay_in_the_reason():
    found = of(failed(message="w8a8 asks for 0.99, int32 not fp8_e4m3: [64, 64]x3 at-7"))
    assert found["reason"].item() == "w8a8 asks for #, int32 not fp8_e4m3: [#, #]x3 at-#"


def test_what_failed_as_declared_is_counted_apart_and_comes_last():
    rows = [failed(candidate=f"control{n}", message="same", expect="incorrect_values") for n in range(3)]
    found = of(*rows, failed(candidate="real", message="other"))
    assert found.select("reason", "outcomes", "as_expected").rows() == [("other", 1, 0), ("same", 3, 3)]


def test_passed_is_no_failure_and_empty_message_is_a_reason():
    assert of(cell()).is_empty()
    assert of(failed(message=None))["reason"].to_list() == [""]
