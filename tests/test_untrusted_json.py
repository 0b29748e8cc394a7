"""Reading of files and texts that may be damaged or hostile."""

import io
import os

import pytest

from kernel_matrix.untrusted_json import (
    JsonFault,
    NoSuchFileError,
    UntrustedJsonError,
    parse,
    parse_lenient,
    read_bytes,
    read_lines,
    read_object,
)


def test_read_bytes_link_is_followed_only_on_request(tmp_path):
    (tmp_path / "file").write_text("{}")
    link = tmp_path / "link"
    link.symlink_to("file")
    assert read_bytes(link, follow_links=True) == b"{}"
    with pytest.raises(UntrustedJsonError, match="is a symbolic link") as refused:
        read_bytes(link)
    assert refused.value.fault is JsonFault.NOT_A_FILE


@pytest.mark.parametrize("follow_links", [False, True])
def test_read_bytes_other_than_a_file_is_refused(tmp_path, follow_links):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(UntrustedJsonError, match="is not a regular file"):
            read_bytes(path, follow_links=follow_links)
    with pytest.raises(NoSuchFileError, match="there is no such file"):
        read_bytes(tmp_path / "none", follow_links=follow_links)


def test_read_bytes_size_limit_is_exact(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bytes(path, max_bytes=5) == b"12345"
    with pytest.raises(UntrustedJsonError, match="5 of at most 4 bytes") as refused:
        read_bytes(path, max_bytes=4)
    assert refused.value.fault is JsonFault.TOO_LARGE


def test_read_bytes_own_refuses_other_owner_and_second_name(tmp_path, monkeypatch):
    path = tmp_path / "own.json"
    path.write_text("{}")
    assert read_bytes(path, own=True) == b"{}"
    path.with_name("second").hardlink_to(path)
    with pytest.raises(UntrustedJsonError, match="has another name"):
        read_bytes(path, own=True)
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UntrustedJsonError, match="belongs to user"):
        read_bytes(path, own=True)
    assert read_bytes(path) == b"{}"


@pytest.mark.parametrize("content", [b"[]", b"", b'{"a": NaN}', b'{"a": "\\ud800"}', b"\xff", b'{"a":' * 2000])
def test_read_object_anything_else_is_not_json(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UntrustedJsonError) as refused:
        read_object(path)
    assert refused.value.fault is JsonFault.NOT_JSON


def test_read_lines_blank_and_long_lines_keep_numbers():
    seen = io.BytesIO()
    text = b"one\n\n" + b"x" * 20 + b"\n  four  "
    assert list(read_lines(io.BytesIO(text), 8, seen.write)) == [(1, b"one"), (3, None), (4, b"four")]
    assert seen.getvalue() == text


def test_parse_lenient_takes_nan_but_no_repeated_key():
    assert parse_lenient('{"a": "\\ud800", "b": Infinity}') == {"a": "\\ud800", "b": float("inf")}
    with pytest.raises(UntrustedJsonError, match="'a' twice") as refused:
        parse_lenient('{"a": 1,\n"a": 2}', line=5)
    assert refused.value.line == 6


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", "1e999", "9" * 5000, "{", "[" * 200_000])
def test_parse_invalid_text_is_refused(text):
    with pytest.raises(UntrustedJsonError):
        parse(text)
