"""HTML that cannot be broken out of: text is escaped unless it was made here."""

from __future__ import annotations

from html import escape


class Html(str):
    """Markup made by :func:`element`; any other text is escaped where it meets one."""

    __slots__ = ()


_EMPTY = frozenset({"meta", "link", "br", "hr", "input", "col"})
"""Elements that have no content and no end."""


def element(name: str, /, *inside: str, **attributes: str | None) -> Html:
    """``<name attributes>inside</name>``.

    :param inside: text, which is escaped, or :class:`Html`, which is not.
    :param attributes: a trailing ``_`` is dropped (``class_``), other ``_`` become ``-``; null leaves it out.
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY:
        return Html(f"<{name}{said}>")
    return Html(f"<{name}{said}>{joined(*inside)}</{name}>")


def joined(*parts: str) -> Html:
    """All ``parts`` one after the other, each escaped unless it is :class:`Html`."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def raw(name: str, text: str, /, **attributes: str) -> Html:
    """Return a ``script`` or ``style`` with trusted ``text``: our own, or made by ``column_data.embedded``.

    :raises ValueError: for text that would end the element.
    """
    if f"</{name}" in text.lower() or "<!--" in text:
        raise ValueError(f"text of <{name}> would end it")
    opening = element("br", **attributes).removeprefix("<br")
    return Html(f"<{name}{opening}{text}</{name}>")
