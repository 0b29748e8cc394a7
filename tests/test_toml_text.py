from __future__ import annotations

import sys
from dataclasses import dataclass, field
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_matrix.toml_text import find, nearest, scan, show

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def paths_of(value, path=()):
    """Return every path of a parsed document, which is what the scanner must find."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {path} if path else set()
    for key, item in items:
        found |= paths_of(item, (*path, key))
    return found


def scan_checked(text):
    positions = scan(text)
    assert set(positions) == paths_of(tomllib.loads(text))
    return positions


TRICKY = {
    "a header inside a string": ('a = "[x]"\nb = 1\n', {("a",): (1, 1), ("b",): (2, 1)}),
    "a key inside a multi-line string": ('a = """\n[t]\nb = 2\n# no \\""" end\n"""\nb = 1\n', {("b",): (6, 1)}),
    "quotes before a closing delimiter": ('a = """x""""" # """\nb = \'\'\'y\'\'\'\'\'\nc = 1\n', {("c",): (3, 1)}),
    "a backslash before the delimiter": ("a = 'x\\'\nb = '''y\\'''\nc = \"\\\\\"\nd = 1\n", {("d",): (4, 1)}),
    "empty strings": ("a = \"\"\nb = ''\nc = \"\"\"\"\"\"\nd = ''''''\ne = 1\n", {("e",): (5, 1)}),
    "a hash inside a string": ('a = "#" # b = 1\nb = 2\n', {("b",): (2, 1)}),
    "brackets in comments": ("a = [ # ]\n  1, # [[\n  2,\n]\nb = 1\n", {("a", 1): (3, 3), ("b",): (5, 1)}),
    "a table header with blanks": (
        "  [ a . 'b c' ]  # [d]\n\tx=1\n",
        {("a", "b c"): (1, 3), ("a", "b c", "x"): (2, 2)},
    ),
    "an inline table": (
        'a = { b = "}", c.d = [1, {e = 2}] }\n',
        {("a", "c", "d", 1, "e"): (1, 27), ("a", "b"): (1, 7)},
    ),
    "carriage returns": ("a = 1\r\n\r\n[[t]] # x\r\nb = [\r\n 1]\r\n", {("t", 0): (3, 1), ("t", 0, "b", 0): (5, 2)}),
    "characters outside the basic plane": ('a = "🐍é"\n[t]\nb = {"é" = 1, c = 2}\n', {("t", "b", "c"): (3, 15)}),
    "an escaped key": ('"a\\tb\\u00e9" = 1\n', {("a\tbé",): (1, 1)}),
    "an empty key": ("\"\".'' = 1\n", {("", ""): (1, 1)}),
    "dates with a blank": ("a = [1979-05-27 07:32:00, 07:32:00]\nb = 1\n", {("a", 1): (1, 27), ("b",): (2, 1)}),
    "no line end": ("a = [1, 2]\nb = 1.5", {("b",): (2, 1)}),
    "a line separator in a string": ('a = "\u2028\x85"\nb = 1\n', {("b",): (2, 1)}),
}


@pytest.mark.parametrize(("text", "expected"), TRICKY.values(), ids=TRICKY)
def test_tricky_text_confuses_nothing(text, expected):
    positions = scan_checked(text)
    assert {path: positions[path] for path in expected} == expected


def test_scan_subtable_of_array_belongs_to_latest_element():
    text = dedent("""\
        [[a]]
        [a.b]
        c = 1
        [[a.d]]
        [[a.d]]
        e = 1
        [[a]]
        [a.b]
        c = 2
        """)
    positions = scan_checked(text)
    assert positions["a", 0, "b", "c"] == (3, 1)
    assert positions["a", 0, "d", 1, "e"] == (6, 1)
    assert positions["a", 1, "b"] == (8, 1)


def test_scan_implied_table_has_place_of_first_mention():
    positions = scan_checked("[a.b.c]\n[a]\n[d]\ne.f = 1\n")
    assert (positions["a",], positions["a", "b"], positions["d", "e"]) == ((2, 1), (1, 1), (4, 1))


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", " \t\r\n"])
def test_nothing_is_found_in_an_empty_document(text):
    assert scan(text) == {}


def test_nearest_falls_back_to_what_is_around():
    positions = scan("[[a]]\nb = 1\n")
    assert nearest(positions, ("a", 0, "missing")) == (1, 1)
    assert nearest(positions, ("a", 0, "b", 3)) == (2, 1)
    assert nearest(positions, ("z",)) == (1, 1)


@pytest.mark.parametrize(
    ("key_path", "expected"),
    [
        ("a[1].b", (4, 1)),
        ("a[1].b[0]", (4, 6)),
        ("a[1].b[7]", (4, 1)),
        ("a[1].zzz.y", (3, 1)),
        ('a[1]."x.y"', (5, 1)),
        ('a[1]."x.y"."z"', (5, 1)),
        ("nothing", (1, 1)),
        ("not a path at all", (1, 1)),
    ],
)
def test_find_reads_what_show_writes(key_path, expected):
    assert find("[[a]]\n\n[[a]]\nb = [1]\n'x.y' = 1\n", key_path) == expected


def test_show_stays_on_one_line():
    assert show(("a", 0, "b c", "d\n\u2028", 'q"\\')) == 'a[0]."b c"."d\\n\\u2028"."q\\"\\\\"'


# --- generated documents: the writer notes where it puts each thing, the scanner must agree

KEYS = st.text(alphabet="ab-_1 .#[]{}='\"\\\n\té🐍", max_size=4)
BLANKS = st.sampled_from(["", " ", "\t ", "  "])
COMMENTS = st.sampled_from(["", " # note", " # [a] = '", ' # """', " # }]"])
ENDS = st.sampled_from(["\n", "\r\n"])
SCALARS = st.sampled_from(
    [
        "1", "0x1f", "-1_000", "1e3", "inf", "true", "1979-05-27T07:32:00Z", "07:32:00",
        '""', "''", '"[x]"', "'#'", '"a\\"]b"', "'\\'", '"\\\\"', '"é🐍"', "'}, {'",
        '"""\n[t]\na = 1\n"""', '"""a"b""c\\"""d"""""', "'''\n]\n'''''", '""""""', "''''''", '"""\\\n  x"""',
    ]
)  # fmt: skip


@dataclass
class Writer:
    draw: st.DrawFn
    text: str = ""
    positions: dict = field(default_factory=dict)

    def put(self, text):
        self.text += text

    def note(self, path):
        self.positions[path] = (self.text.count("\n") + 1, len(self.text) - (self.text.rfind("\n") + 1) + 1)

    def blank(self, *, lines=False):
        self.put(self.draw(BLANKS))
        if lines and self.draw(st.booleans()):
            self.put(self.draw(COMMENTS) + self.draw(ENDS) + self.draw(BLANKS))

    def key(self, key):
        plain = key.isascii() and key.replace("-", "a").replace("_", "a").isalnum()
        style = self.draw(st.sampled_from(["bare", "basic", "literal"]))
        if style == "bare" and plain:
            self.put(key)
        elif style == "literal" and key.isprintable() and "'" not in key:
            self.put(f"'{key}'")
        else:
            escaped = key.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
            self.put(f'"{escaped}"')

    def pair(self, path, depth):
        self.note(path)
        self.key(path[-1])
        self.blank()
        self.put("=")
        self.blank()
        self.value(path, depth)

    def value(self, path, depth):
        kind = self.draw(st.sampled_from(["scalar", "array", "table"] if depth else ["scalar"]))
        if kind == "scalar":
            self.put(self.draw(SCALARS))
        elif kind == "array":
            self.array(path, depth - 1)
        else:
            self.inline_table(path, depth - 1)

    def array(self, path, depth):
        self.put("[")
        size = self.draw(st.integers(0, 3))
        for index in range(size):
            self.blank(lines=True)
            self.note((*path, index))
            self.value((*path, index), depth)
            self.blank(lines=True)
            if index < size - 1 or self.draw(st.booleans()):
                self.put(",")
        self.blank(lines=True)
        self.put("]")

    def inline_table(self, path, depth):
        self.put("{")
        for number, key in enumerate(self.draw(st.lists(KEYS, max_size=3, unique=True))):
            self.put("," if number else "")
            self.blank()
            self.pair((*path, key), depth)
            self.blank()
        self.put("}")

    def body(self, path):
        for key in self.draw(st.lists(KEYS, max_size=3, unique=True)):
            self.blank()
            self.pair((*path, key), 2)
            self.put(self.draw(COMMENTS) + self.draw(ENDS))

    def header(self, brackets, key):
        self.put("[" * brackets)
        self.blank()
        self.key(key)
        self.blank()
        self.put("]" * brackets + self.draw(COMMENTS) + self.draw(ENDS))


@st.composite
def documents(draw):
    writer = Writer(draw)
    counts = {}
    for key in draw(st.lists(KEYS.map(lambda key: f"t{key}"), max_size=4)):
        writer.blank()
        if key in counts or draw(st.booleans()):
            if counts.get(key) == "table":
                continue
            counts[key] = counts.get(key, -1) + 1
            before = dict(writer.positions)
            writer.note((key,))
            writer.positions |= {(key,): before.get((key,), writer.positions[key,])}
            writer.note((key, counts[key]))
            writer.header(2, key)
            writer.body((key, counts[key]))
        else:
            counts[key] = "table"
            writer.note((key,))
            writer.header(1, key)
            writer.body((key,))
    return writer


@settings(deadline=None, max_examples=300)
@given(documents())
def test_generated_documents_are_found_where_they_were_written(written):
    assert scan_checked(written.text) == written.positions
