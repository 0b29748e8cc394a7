"""HTML construction: text is escaped unless it was made here, and its control characters are shown."""

from __future__ import annotations

from html import escape

from kernel_matrix.results.descriptions import visible


class Html(str):
    """Markup made by :func:`element`; other text is escaped when it is put inside."""

    __slots__ = ()


_EMPTY = frozenset({"meta", "link", "br", "hr", "input", "col"})
"""Elements without content and end tag."""


def element(name: str, /, *inside: str, **attributes: str | None) -> Html:
    """Write ``<name attributes>inside</name>``.

    Args:
        name: Name of the element.
        inside: Text, which is escaped, or :class:`Html`, which is not.
        attributes: A trailing ``_`` is dropped (``class_``), other ``_`` become ``-``; None leaves the attribute out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(visible(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{joined(*inside)}</{name}>")


def joined(*parts: str) -> Html:
    """Join ``parts``, each escaped unless it is :class:`Html`."""
    return Html("".join(part if isinstance(part, Html) else escape(visible(part)) for part in parts))


def raw(name: str, text: str, /, **attributes: str) -> Html:
    """Write a ``script`` or ``style`` with trusted ``text``: our own, or made by ``column_data.embed_json``.

    Raises:
        ValueError: The text would end the element.
    """
    if f"</{name}" in text.lower() or "<!--" in text:
        raise ValueError(f"text of <{name}> would end it")
    opening = element("br", **attributes).removeprefix("<br")
    return Html(f"<{name}{opening}{text}</{name}>")
