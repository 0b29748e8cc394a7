"""The cache of artifacts: entries are whole or absent, checked and bounded, and do not block other processes."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import fields, replace

import pytest

from kernel_matrix.attempt.buildcache import CACHE_VARIABLE, BuildCache, BuildKey, default_cache
from kernel_matrix.inside.wire import KernelCode

KERNEL = KernelCode("scale", "9.0", 8, 0, 4, 256, 16, "ab" * 32)
RECIPE = BuildKey(source=b"x = 1", arch="9.0a", toolchain="sha256:1", build_version="c0de", order=b"{}")


@pytest.fixture
def cache(tmp_path):
    return BuildCache(tmp_path / "cache", max_bytes=100_000)


@pytest.fixture
def into(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def made(tmp_path):
    """Makes artefacts."""

    def artifact(content=b"artefact"):
        path = tmp_path / "made.tar"
        path.write_bytes(content)
        return path

    return artifact


def test_what_was_kept_is_recalled_as_a_copy_of_ones_own(cache, into, made):
    cache.keep("key", made(), (KERNEL,), "remarks")
    kept = cache.recall("key", into)
    assert kept.artifact.parent == into
    assert kept.artifact.read_bytes() == b"artefact"
    assert kept.artifact.stat().st_mode & 0o777 == 0o444
    assert (kept.kernels, kept.log_tail) == ((KERNEL,), "remarks")
    kept.artifact.chmod(0o644)
    kept.artifact.write_bytes(b"spoilt by its user")
    assert cache.recall("key", into).artifact.read_bytes() == b"artefact"


def test_what_was_never_kept_is_not_there(cache, into):
    assert cache.recall("key", into) is None
    assert list(into.iterdir()) == []


def damaged_artifact(entry):
    (entry / "artifact.tar").write_bytes(b"artefacT")


def cut_note(entry):
    note = entry / "note.json"
    note.write_text(note.read_text()[:-5])


def other_version(entry):
    note = entry / "note.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "version": 99}))


def strange_note(entry):
    (entry / "note.json").write_text("[]")


@pytest.mark.parametrize("damage", [damaged_artifact, cut_note, other_version, strange_note])
def test_an_entry_that_is_not_what_it_was_is_taken_away(damage, cache, into, made, tmp_path):
    cache.keep("key", made(), (), "")
    damage(tmp_path / "cache" / "key")
    assert cache.recall("key", into) is None
    assert list((tmp_path / "cache").iterdir()) == []
    assert list(into.iterdir()) == []
    cache.keep("key", made(), (), "")
    assert cache.recall("key", into) is not None


def test_an_entry_without_its_artefact_is_none(cache, into, made, tmp_path):
    cache.keep("key", made(), (), "")
    (tmp_path / "cache" / "key" / "artifact.tar").unlink()
    assert cache.recall("key", into) is None


def test_the_least_recently_used_goes_first(cache, into, made, tmp_path):
    for age, key in enumerate(("old", "older", "oldest")):
        cache.keep(key, made(bytes(30_000)), (), "")
        os.utime(tmp_path / "cache" / key / "note.json", (1000 - age, 1000 - age))
    cache.recall("oldest", into)  # and is not any more
    cache.keep("new", made(bytes(30_000)), (), "")
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["new", "old", "oldest"]


def test_what_a_writer_that_died_left_is_swept_when_it_is_old(cache, made, tmp_path):
    cache.keep("key", made(), (), "")
    for name in (".new-dead", ".new-alive"):
        (tmp_path / "cache" / name).mkdir()
    os.utime(tmp_path / "cache" / ".new-dead", (1000, 1000))
    cache.keep("other", made(), (), "")
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [".new-alive", "key", "other"]


def test_a_cache_that_cannot_be_written_to_is_no_trouble(into, made, tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = BuildCache(tmp_path / "file" / "cache")
    cache.keep("key", made(), (), "")
    assert cache.recall("key", into) is None


def test_many_may_keep_and_recall_the_same_at_once(cache, into, made, tmp_path):
    artifact, seen = made(), []

    def work():
        for _ in range(10):
            cache.keep("key", artifact, (KERNEL,), "")
            seen.append(cache.recall("key", into))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 40
    assert all(kept.artifact.read_bytes() == b"artefact" for kept in seen)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["key"]


@pytest.mark.parametrize("name", [field.name for field in fields(BuildKey)])
def test_each_part_of_a_recipe_decides(name):
    value = getattr(RECIPE, name)
    others = {bytes: lambda: value + b" ", str: lambda: value + " ", dict: lambda: {**value, "kernel.cu": b"x"}}
    changed = replace(RECIPE, **{name: others[type(value)]()})
    assert changed.key != RECIPE.key
    assert replace(RECIPE).key == RECIPE.key


def test_no_two_recipes_join_to_the_same():
    assert replace(RECIPE, arch="9", toolchain="0a").key != replace(RECIPE, arch="90", toolchain="a").key


def test_where_the_cache_is_can_be_said(tmp_path, monkeypatch, into, made):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "named"))
    default_cache().keep("key", made(), (), "")
    assert (tmp_path / "named" / "key").is_dir()
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    default_cache().keep("key", made(), (), "")
    assert (tmp_path / "xdg" / "kernel-matrix" / "builds" / "key").is_dir()
