"""Safetensors headers with wrong numbers."""

import struct

import pytest

from kernel_matrix.sources.document import UnreadableFileError
from kernel_matrix.sources.flashinfer.blob import MAX_HEADER, find_tensor, sha256_of
from tests.sources.flashinfer_set import container, entry


@pytest.fixture
def blob(tmp_path):
    path = tmp_path / "rows.safetensors"
    path.write_bytes(container())
    return path


def test_finds_where_a_tensor_lies(blob):
    found = find_tensor(blob, "rows", "int32", [7])
    content = blob.read_bytes()[found.start : found.start + found.nbytes]
    assert struct.unpack("<7i", content) == (6, 5, 4, 3, 2, 1, 0)


def test_a_tensor_of_no_elements_and_one_of_no_dimensions(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(
        container({"none": entry(shape=[0], data_offsets=[0, 0]), "one": entry(shape=[], data_offsets=[4, 8])})
    )
    assert find_tensor(path, "none", "int32", [0]).nbytes == 0
    assert find_tensor(path, "one", "int32", []).nbytes == 4


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not safetensors: a header of 0 bytes in a file of 0"),
        (b"\x01\x02", "is not safetensors"),
        (container(length=1 << 63), "is not safetensors: a header of 9223372036854775808 bytes"),
        (container(length=500), "is not safetensors: a header of 500 bytes"),
        (container(length=20), "not valid JSON"),
        (container(length=0), "not valid JSON"),
        (struct.pack("<Q", 3) + b"[1]", "must be a JSON object"),
        (struct.pack("<Q", 7) + b'{"a":N}', "not valid JSON"),
        (struct.pack("<Q", 2) + b"\xff\xff", "not valid JSON"),
        (container({}), "has no tensor 'rows'"),
        (container({"rows": 7}), "has no tensor 'rows'"),
        (container({"rows": {}}), "dtype None is unsupported; supported: F64"),
        (container({"rows": entry(dtype="Q99")}), "dtype 'Q99' is unsupported"),
        (container({"rows": entry(dtype=["I32"])}), "is unsupported"),
        (container({"rows": entry(dtype="I64")}), "is int64; the definition needs int32"),
        (container({"rows": entry(shape=[6])}), "has shape [6]; expected [7]"),
        (container({"rows": entry(shape=[7.0])}), "has shape [7.0]"),
        (container({"rows": entry(shape="7")}), "has shape '7'"),
        (container({"rows": entry(shape=[True] * 7)}), "has shape"),
        (container({"rows": entry(data_offsets=[0, 24])}), "data_offsets [0, 24] do not cover 28 bytes"),
        (container({"rows": entry(data_offsets=[28, 0])}), "do not cover 28 bytes"),
        (container({"rows": entry(data_offsets=[-28, 0])}), "do not cover 28 bytes"),
        (container({"rows": entry(data_offsets=[0])}), "do not cover 28 bytes"),
        (container({"rows": entry(data_offsets=None)}), "do not cover 28 bytes"),
        (container({"rows": entry(data_offsets=[4, 32])}), "lie beyond the end of the file"),
        (container({"rows": entry(data_offsets=[1 << 62, (1 << 62) + 28])}), "lie beyond the end of the file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a pointer of Git LFS"),
    ],
)
def test_nothing_in_a_header_is_believed(tmp_path, content, reason):
    path = tmp_path / "hostile"
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError) as raised:
        find_tensor(path, "rows", "int32", [7])
    assert reason in str(raised.value)


def test_the_metadata_are_no_tensor(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(container({"__metadata__": entry()}))
    with pytest.raises(UnreadableFileError, match="has no tensor"):
        find_tensor(path, "__metadata__", "int32", [7])


def test_a_header_is_read_up_to_a_limit(tmp_path):
    path = tmp_path / "x"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MAX_HEADER + 1))
        file.truncate(MAX_HEADER + 100)
    with pytest.raises(UnreadableFileError, match="the header is larger than 16 MiB"):
        find_tensor(path, "rows", "int32", [7])


def test_what_is_no_file_is_told(tmp_path):
    with pytest.raises(UnreadableFileError, match="there is no such file"):
        find_tensor(tmp_path, "rows", "int32", [7])
    with pytest.raises(UnreadableFileError, match="cannot be read"):
        sha256_of(tmp_path)
