"""Pages that are made from the code hold what the code says now."""

from __future__ import annotations

from tools import describe_answers, describe_cli, describe_matrix


def test_reference_of_the_command_line_is_current():
    assert describe_cli.PAGE.read_text() == describe_cli.page_text(), "run python -m tools.describe_cli"


def test_tables_of_keys_are_current():
    text = describe_matrix.PAGE.read_text()
    assert text == describe_matrix.page_text(text), "run python -m tools.describe_matrix"


def test_pages_of_answers_are_current():
    with describe_answers.open_shell() as shell:
        for page in describe_answers.PAGES:
            text = page.read_text()
            assert text == describe_answers.page_text(text, page.name, shell), "run python -m tools.describe_answers"


def test_every_key_of_the_schema_is_described():
    for name in describe_matrix.TABLES:
        described = describe_matrix.SCHEMA if name == "axes" else describe_matrix.SCHEMA["$defs"][name]
        silent = [key for key, value in described["properties"].items() if not value.get("description")]
        assert silent == [], name
