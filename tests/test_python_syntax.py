"""Parsing sources of others: what no Python may crash on."""

import ast

import pytest

from kernel_matrix.python_syntax import parse

LINKS = 200_000


@pytest.mark.parametrize("link", ["+1", ".b", "()", "[0]"])
def test_parse_chain_of_many_links_is_refused(link):
    with pytest.raises((MemoryError, RecursionError)):
        parse("x = a" + link * LINKS)


def test_parse_long_text_of_few_tokens_is_parsed():
    tree = parse(f"CUDA = {'x' * 3 * LINKS!r}\n")
    assert isinstance(tree.body[0], ast.Assign)


def test_parse_long_text_that_is_no_python_is_a_syntax_error():
    with pytest.raises(SyntaxError):
        parse("x = (\n" + "#" * 3 * LINKS)
