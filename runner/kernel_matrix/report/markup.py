"""HTML construction: text is escaped unless it was made here, and its control characters are shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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


def scrolled(label: str, *inside: Html, class_: str = "scroll") -> Html:
    """Write a region that a keyboard can scroll where the screen is narrow."""
    return element("div", *inside, class_=class_, tabindex="0", role="region", aria_label=label)


def plain_table(head: Sequence[str], body: Sequence[Sequence[str]], *, texts: Collection[str]) -> Html:
    """Write a table; the columns named in ``texts`` are text, all others are numbers."""
    kinds = ["text" if name in texts else "figure" for name in head]
    headings = (element("th", name, class_=kind, scope="col") for name, kind in zip(head, kinds, strict=True))
    rows = (
        element("tr", *(element("td", text, class_=kind) for text, kind in zip(row, kinds, strict=True)))
        for row in body
    )
    return element("table", element("thead", element("tr", *headings)), element("tbody", *rows), class_="plain")
