"""Adding to the corpus of accepted changes."""

from __future__ import annotations

from datetime import date

import pytest

from kernel_matrix.analysis.accepted import read_accepted
from kernel_matrix.errors import UsageError
from kernel_matrix.nightly.accept_changes import accept

UNTIL = date(2026, 12, 31)


def test_what_is_added_stands_behind_what_is_there(tmp_path):
    path = tmp_path / "made" / "accepted.toml"
    first = accept(path, "softmax/a", reason='driver "580"', until=UNTIL)
    path.write_text(f"# why\n{path.read_text().rstrip()}")
    second = accept(path, "softmax/b", reason="known", until=UNTIL)
    assert read_accepted(path) == (first, second)
    assert first.reason == 'driver "580"'
    assert path.read_text().startswith("# why\n")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[[accept", "is not valid TOML"),
        (b"\xff", "is not valid TOML"),
        (b"colour = 1", "unknown key"),
        (b"accept = []", "TOML"),
    ],
)
def test_a_file_that_is_not_in_order_is_named_and_left_alone(content, words, tmp_path):
    path = tmp_path / "accepted.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words) as refused:
        accept(path, "softmax/a", reason="known", until=UNTIL)
    assert str(path) in str(refused.value)
    assert path.read_bytes() == content
