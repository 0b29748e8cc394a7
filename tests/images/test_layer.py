from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from kernel_matrix.images.layer import write_layer

NEWEST = 1767225600
Item = tuple[str, str, bytes, int]
"""Type (file, dir, hard, symbolic), name, content or target, modification time."""

_TYPES = {"file": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "hard": tarfile.LNKTYPE, "symbolic": tarfile.SYMTYPE}


def tree(path: Path, items: Sequence[Item], uname: str = "root", headers: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for kind, name, data, mtime in items:
            info = tarfile.TarInfo(name)
            info.type, info.mtime, info.uname = _TYPES[kind], mtime, uname
            info.pax_headers = dict(headers or {})
            if kind == "file":
                info.size = len(data)
            elif kind != "dir":
                info.linkname = data.decode()
            archive.addfile(info, io.BytesIO(data) if kind == "file" else None)
    return path


def names(path: Path) -> list[str]:
    with tarfile.open(path) as layer:
        return layer.getnames()


def test_two_trees_that_differ_in_their_making_are_one_layer(tmp_path: Path) -> None:
    one = [
        ("dir", "./usr", b"", NEWEST + 10),
        ("file", "./usr/b", b"same file", NEWEST + 10),
        ("hard", "./usr/a", b"./usr/b", NEWEST + 10),
        ("file", "./var/log/dpkg.log", b"09:15", 7),
        ("file", "./etc/hostname", b"one", 7),
        ("file", "./etc/shadow", b"root:*:20700:0:99999:7:::\n", NEWEST + 10),
        ("file", "./old", b"old", 1000),
    ]
    two = [
        ("file", "old", b"old", 1000),
        ("file", ".dockerenv", b"", 7),
        ("file", "etc/shadow", b"root:*:20900:0:99999:7:::\n", NEWEST + 99),
        ("file", "usr/a", b"same file", NEWEST + 99),
        ("hard", "usr/b", b"usr/a", NEWEST + 99),
        ("dir", "usr/", b"", NEWEST + 99),
    ]
    first = write_layer(tree(tmp_path / "1", one), tmp_path / "a", newest_s=NEWEST)
    second = write_layer(tree(tmp_path / "2", two, uname="somebody"), tmp_path / "b", newest_s=NEWEST)
    assert first == second
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert first.size == (tmp_path / "a").stat().st_size


def test_content_shows_in_the_digest(tmp_path: Path) -> None:
    layers = [
        write_layer(tree(tmp_path / "t", [("file", "f", data, 1)]), tmp_path / "l", newest_s=NEWEST).digest
        for data in (b"1", b"2")
    ]
    assert layers[0] != layers[1]


def test_parents_come_first_and_links_after_what_they_link_to(tmp_path: Path) -> None:
    items: list[Item] = [
        ("file", "z/file", b"content", 1),
        ("hard", "a/link", b"z/file", 1),
        ("symbolic", "a/soft", b"../z/file", 1),
        ("dir", "z", b"", 1),
        ("dir", "a", b"", 1),
    ]
    write_layer(tree(tmp_path / "t", items), tmp_path / "l", newest_s=NEWEST)
    with tarfile.open(tmp_path / "l") as layer:
        assert layer.getnames() == ["a", "a/link", "a/soft", "z", "z/file"]
        assert layer.getmember("a/link").isfile()
        assert layer.getmember("z/file").linkname == "a/link"
        assert layer.getmember("a/soft").linkname == "../z/file"
        content = layer.extractfile("z/file")
        assert content is not None
        assert content.read() == b"content"


def test_a_link_to_a_trace_keeps_the_content(tmp_path: Path) -> None:
    items: list[Item] = [("file", "var/log/x", b"kept", 1), ("hard", "usr/x", b"var/log/x", 1)]
    write_layer(tree(tmp_path / "t", items), tmp_path / "l", newest_s=NEWEST)
    with tarfile.open(tmp_path / "l") as layer:
        content = layer.extractfile("usr/x")
        assert content is not None
        assert content.read() == b"kept"


def test_traces_go_and_their_folders_stay(tmp_path: Path) -> None:
    gone = [
        ".dockerenv", "dev/console", "proc/1", "run/lock", "tmp/x", "var/log/dpkg.log", "var/cache/ldconfig/aux-cache",
        "var/lib/apt/lists/x", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/machine-id", "etc/passwd-",
        "etc/.pwd.lock", "etc/apt/sources.list", "var/lib/dpkg/status-old", "var/lib/dpkg/lock", "root/.cache/x",
    ]  # fmt: skip
    kept = ["etc/passwd", "etc/hosts.allow", "tmp", "usr/log", "var/lib/dpkg/status", "var/log"]
    items: list[Item] = [("dir" if name in ("tmp", "var/log") else "file", name, b"", 1) for name in gone + kept]
    write_layer(tree(tmp_path / "t", items), tmp_path / "l", newest_s=NEWEST)
    assert names(tmp_path / "l") == sorted(kept)


def test_file_capabilities_stay_and_other_headers_go(tmp_path: Path) -> None:
    headers = {"SCHILY.xattr.security.capability": "x", "LIBARCHIVE.creationtime": "17"}
    write_layer(tree(tmp_path / "t", [("file", "f", b"", 1)], headers=headers), tmp_path / "l", newest_s=NEWEST)
    with tarfile.open(tmp_path / "l") as layer:
        assert layer.getmember("f").pax_headers == {"SCHILY.xattr.security.capability": "x"}


def test_older_files_keep_their_time(tmp_path: Path) -> None:
    items: list[Item] = [("file", "new", b"", NEWEST + 1), ("file", "old", b"", 1000)]
    write_layer(tree(tmp_path / "t", items), tmp_path / "l", newest_s=NEWEST)
    with tarfile.open(tmp_path / "l") as layer:
        assert [member.mtime for member in layer] == [NEWEST, 1000]
