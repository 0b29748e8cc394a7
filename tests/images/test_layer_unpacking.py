"""Layers as programs write them, and hostile ones: nothing is ever written outside the tree."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kernel_matrix.errors import ImageError
from kernel_matrix.images.layer_unpacking import TreeBudget, unpack_layer

FOLDER, LINK, HARD_LINK, DEVICE = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE
Entry = tuple[str, bytes | str | None, dict[str, Any]]


def file(name: str, content: bytes = b"", **settings: Any) -> Entry:
    return name, content, settings


def other(name: str, kind: bytes, target: str = "", **settings: Any) -> Entry:
    return name, target, {"type": kind, **settings}


def layer_of(entries: Sequence[Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content, settings in entries:
            info = tarfile.TarInfo(name)
            info.mode = 0o755 if settings.get("type") == FOLDER else 0o644
            for key, value in settings.items():
                setattr(info, key, value)
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                info.linkname = content or ""
                archive.addfile(info)
    return buffer.getvalue()


def apply(root: Path, *layers: Sequence[Entry], budget: TreeBudget | None = None) -> None:
    root.mkdir(exist_ok=True)
    for entries in layers:
        data = layer_of(entries)
        unpack_layer(io.BytesIO(data), root, diff_id=digest(data), budget=budget or TreeBudget())


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_files_keep_content_mode_and_time(tmp_path: Path) -> None:
    root = tmp_path / "root"
    apply(root, [other("bin", FOLDER), file("bin/tool", b"#!", mode=0o4755, mtime=1_000_000_000)])
    tool = root / "bin" / "tool"
    assert tool.read_bytes() == b"#!"
    assert (tool.stat().st_mode & 0o7777, tool.stat().st_mtime) == (0o755, 1_000_000_000)


def test_folders_that_nothing_names_are_made(tmp_path: Path) -> None:
    apply(tmp_path / "root", [file("a/b/c", b"1")])
    assert (tmp_path / "root/a/b/c").read_bytes() == b"1"


@pytest.mark.parametrize("prefix", ["", "./", "/"])
def test_names_may_begin_in_several_ways(tmp_path: Path, prefix: str) -> None:
    apply(tmp_path / "root", [other(prefix or "./", FOLDER), file(f"{prefix}etc/x", b"1")])
    assert (tmp_path / "root/etc/x").read_bytes() == b"1"


def test_an_upper_layer_replaces_what_a_lower_one_has(tmp_path: Path) -> None:
    root = tmp_path / "root"
    lower = [file("file", b"old"), file("folder/inner"), other("link", LINK, "folder"), file("kept/one")]
    upper = [other("file", FOLDER), file("folder", b"now a file"), other("link", FOLDER), other("kept", FOLDER)]
    apply(root, lower, upper)
    assert names(root) == {"file", "folder", "link", "kept", "kept/one"}
    assert (root / "file").is_dir()
    assert (root / "folder").is_file()
    assert (root / "link").is_dir()
    assert not (root / "link").is_symlink()


def test_whiteouts_remove_what_lower_layers_have(tmp_path: Path) -> None:
    root = tmp_path / "root"
    lower = [file("a/gone"), file("a/stays"), file("b/all/of/it"), file("c/old"), other("d", LINK, "a")]
    upper = [file("a/.wh.gone"), file(".wh.b"), file("c/new"), file("c/.wh..wh..opq"), file("c/later"), file(".wh.d")]
    apply(root, lower, upper)
    assert names(root) == {"a", "a/stays", "c", "c/new", "c/later"}


def test_whiteouts_of_what_is_not_there_do_nothing(tmp_path: Path) -> None:
    apply(tmp_path / "root", [file("a/.wh.never"), file("a/.wh..wh.plnk"), file("b/.wh..wh..opq")])
    assert names(tmp_path / "root") == {"a", "b"}


def test_hard_links_are_kept(tmp_path: Path) -> None:
    root = tmp_path / "root"
    apply(root, [file("one", b"same"), other("two", HARD_LINK, "one"), other("one", HARD_LINK, "./one")])
    assert (root / "one").samefile(root / "two")
    assert (root / "two").read_bytes() == b"same"


def test_links_of_a_merged_usr_are_followed_inside_the_tree(tmp_path: Path) -> None:
    root = tmp_path / "root"
    lower = [other("usr/lib", FOLDER), other("lib", LINK, "usr/lib"), other("absolute", LINK, "/usr/lib")]
    upper = [file("lib/x", b"1"), file("absolute/y", b"2"), other("lib/up", LINK, "../../usr/lib/x")]
    apply(root, lower, upper)
    assert (root / "usr/lib/x").read_bytes() == b"1"
    assert (root / "usr/lib/y").read_bytes() == b"2"
    assert (root / "usr/lib/up").readlink() == Path("../../usr/lib/x")


def test_devices_and_pipes_are_left_out(tmp_path: Path) -> None:
    apply(tmp_path / "root", [other("dev/sda", DEVICE, devmajor=8), other("pipe", tarfile.FIFOTYPE), file("x")])
    assert names(tmp_path / "root") == {"dev", "x"}


HOSTILE = {
    "a name with two dots": ([file("a/../../out", b"!")], "leads out of its folder"),
    "a link up and a file behind it": (
        [other("a", LINK, "../.."), file("a/out", b"!")],
        "leads out of the image",
    ),
    "a link that climbs": ([other("a/b", LINK, "../../x")], "leads out of the image"),
    "a hard link to a file of the host": ([other("a", HARD_LINK, "../../outside")], "leads out of its folder"),
    "a hard link to nothing": ([other("a", HARD_LINK, "etc/passwd")], "is no file of the image"),
    "a hard link to a link": ([other("l", LINK, "/x"), other("a", HARD_LINK, "l")], "is no file of the image"),
    "a whiteout of a parent": ([file("a/x"), file("a/.wh...")], "names no file"),
    "a whiteout of itself": ([file("a/x"), file("a/.wh..")], "names no file"),
    "a whiteout behind two dots": ([file("a/../../.wh.outside")], "leads out of its folder"),
    "links that lead to each other": (
        [other("a", LINK, "b"), other("b", LINK, "a"), file("a/x", b"!")],
        "links that lead nowhere",
    ),
    "a file below a file": ([file("a", b"1"), file("a/b", b"2")], "lies below a file"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_layers_are_refused(tmp_path: Path, kind: str) -> None:
    entries, complaint = HOSTILE[kind]
    outside = tmp_path / "outside"
    outside.write_bytes(b"untouched")
    within = tmp_path / "within"
    within.mkdir()
    with pytest.raises(ImageError, match=complaint):
        apply(within / "root", entries)
    assert [path.name for path in (*sorted(tmp_path.iterdir()), *within.iterdir())] == ["outside", "within", "root"]
    assert outside.read_bytes() == b"untouched"


def test_an_absolute_link_never_leads_to_the_host(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    apply(root, [other("a", LINK, str(outside)), file("a/file", b"!"), file(f"{outside}/other", b"!")])
    assert list(outside.iterdir()) == []
    assert (root / str(outside).lstrip("/") / "file").read_bytes() == b"!"


@pytest.mark.parametrize(
    ("budget", "entries"),
    [
        (TreeBudget(size_bytes=1000), [file("a", bytes(600)), file("b", bytes(600))]),
        (TreeBudget(entries=1), [file("a"), file("b")]),
    ],
    ids=["bytes", "entries"],
)
def test_a_tree_may_not_be_too_large(tmp_path: Path, budget: TreeBudget, entries: Sequence[Entry]) -> None:
    with pytest.raises(ImageError, match="larger than is allowed"):
        apply(tmp_path / "root", entries, budget=budget)


def test_a_huge_file_is_refused_before_it_is_written(tmp_path: Path) -> None:
    header = tarfile.TarInfo("huge")
    header.size = 1 << 40
    data = header.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "root").mkdir()
    with pytest.raises(ImageError, match=r"'huge' makes it larger than is allowed .1100 GB"):
        unpack_layer(io.BytesIO(data), tmp_path / "root", diff_id=digest(data), budget=TreeBudget())
    assert names(tmp_path / "root") == set()


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, b"?", tarfile.GNUTYPE_SPARSE])
def test_huge_headers_are_not_read_into_memory(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 1 << 33
    data = header.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
    with pytest.raises(ImageError, match="it is damaged"):
        unpack_layer(io.BytesIO(data), tmp_path, diff_id=digest(data), budget=TreeBudget())


@pytest.mark.parametrize("cut", [0.3, 0.7])
@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_a_layer_that_is_cut_short_is_refused(tmp_path: Path, cut: float, compress: Callable[[bytes], bytes]) -> None:
    whole = compress(layer_of([file("a", os.urandom(100_000))]))
    with pytest.raises(ImageError, match="it is damaged"):
        unpack_layer(io.BytesIO(whole[: int(len(whole) * cut)]), tmp_path, diff_id="sha256:", budget=TreeBudget())


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_a_layer_with_flipped_bits_is_refused(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    whole = bytearray(compress(layer_of([file("a", os.urandom(100_000))])))
    whole[60_000:60_400] = bytes(400)
    with pytest.raises(ImageError, match="A layer of the image is refused"):
        unpack_layer(io.BytesIO(whole), tmp_path, diff_id="sha256:", budget=TreeBudget())


def test_a_layer_with_other_content_is_refused(tmp_path: Path) -> None:
    data = layer_of([file("a", b"1")])
    with pytest.raises(ImageError, match=f"its content is {digest(data)}, the image says sha256:0"):
        unpack_layer(io.BytesIO(data), tmp_path, diff_id="sha256:0", budget=TreeBudget())


def test_bytes_after_the_archive_belong_to_its_digest(tmp_path: Path) -> None:
    data = layer_of([file("a", b"1")]) + b"more"
    unpack_layer(io.BytesIO(data), tmp_path, diff_id=digest(data), budget=TreeBudget())
    assert (tmp_path / "a").read_bytes() == b"1"


@pytest.mark.parametrize("mtime", [-1.0, 1e30, float("nan")])
def test_absurd_times_are_clamped(tmp_path: Path, mtime: float) -> None:
    pax = {"pax_headers": {"mtime": str(mtime)}}
    apply(tmp_path / "root", [file("a", b"1", **pax)])
    assert 0 <= (tmp_path / "root/a").stat().st_mtime < 1 << 34


def test_gzip_and_zstd_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    data = layer_of([file("a", b"1" * 5000)])
    compressed = {"gzip": gzip.compress(data), "zstd": zstandard.compress(data)}
    for kind, layer in compressed.items():
        root = tmp_path / kind
        root.mkdir()
        unpack_layer(io.BytesIO(layer), root, diff_id=digest(data), budget=TreeBudget())
        assert names(root) == {"a"}
