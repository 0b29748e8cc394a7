"""Text of others in Markdown, of which nothing is read as markup."""

from __future__ import annotations

from html import escape

from kernel_matrix.report.number_format import one_line


def code(text: str) -> str:
    """Write a code span, in which Markdown makes neither links nor mentions."""
    return f"<code>{plain_text(text)}</code>"


def plain_text(text: str) -> str:
    """Replace every character that Markdown or HTML could read as markup by a character reference."""
    safe = escape(one_line(text))
    for mark in "\\`*_[]|~@":
        safe = safe.replace(mark, f"&#{ord(mark)};")
    return safe
