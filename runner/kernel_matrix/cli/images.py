"""``kernel-matrix images``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.cli.table_options import TableOptions, table_verb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_matrix.api.images import LockCheck, LockEntry

_Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="Toolchains, each a folder under --images.")]
_AnyNames = Annotated[list[str] | None, typer.Argument(metavar="[NAME…]", help="Toolchains; all when none is named.")]
_Images = Annotated[Path, typer.Option("--images", metavar="DIR", help="Folder with one folder per toolchain.")]
_Lock = Annotated[Path | None, typer.Option("--lock", metavar="FILE", help="The lock; DIR/images.lock by default.")]
_Relock = Annotated[bool, typer.Option("--relock", help="Let another image take the place of the locked one.")]
_DIR = Path("images")
_Sandbox = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Whose images: `docker`, its daemon's; `unpacked`, this user's; `auto`: Docker's, if it answers.",
    ),
]
_Archive = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Unpack one image from a file that `docker save` wrote, without a registry."),
]
_Reference = Annotated[
    str | None, typer.Option(metavar="REPOSITORY:TAG", help="Registry image to pin; the locked one's tag else.")
]
_Adopt = Annotated[str | None, typer.Option(metavar="IMAGE", help="Pin an image that this daemon already has.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    verbs = typer.Typer(help="Pinned images: list, build, pull or unpack, lock, verify.", no_args_is_help=True)
    app.add_typer(verbs, name="images")
    verbs.command("list")(table_verb(_list_verb))
    verbs.command("build")(_build_verb)
    verbs.command("pull")(_pull_verb)
    verbs.command("lock")(_lock_verb)
    verbs.command("verify")(table_verb(_verify_verb))


def _list_verb(*, images: _Images = _DIR, lock: _Lock = None, sandbox: _Sandbox = "auto", table: TableOptions) -> None:
    """Show the lock, and whether each image is here."""
    from kernel_matrix.api.images import list_images

    found, why_not_asked = list_images(images, _lock_path(images, lock), sandbox=sandbox)
    if why_not_asked:
        _say(f"The daemon was not asked: {why_not_asked}")
    _show([_row(one.entry, one.check) for one in found], table)


def _build_verb(names: _Names, *, images: _Images = _DIR, lock: _Lock = None, relock: _Relock = False) -> None:
    """Build images from their folders; say whether the lock was reproduced."""
    for name in names:
        _build(name, images, _lock_path(images, lock), relock=relock)


def _pull_verb(
    names: _Names,
    *,
    images: _Images = _DIR,
    lock: _Lock = None,
    sandbox: _Sandbox = "auto",
    archive: _Archive = None,
) -> None:
    """Pull images by digest; a declared digest is confirmed by that, or refused."""
    if archive is None:
        _pull(names, _lock_path(images, lock), sandbox)
    else:
        _unpack(names, archive, _lock_path(images, lock), sandbox)


def _lock_verb(
    names: _Names,
    *,
    images: _Images = _DIR,
    lock: _Lock = None,
    reference: _Reference = None,
    adopt: _Adopt = None,
    relock: _Relock = False,
    sandbox: _Sandbox = "auto",
) -> None:
    """Resolve tags against their registry and pin what they mean, or adopt an image the daemon has."""
    from kernel_matrix.api.images import lock_images

    path = _lock_path(images, lock)
    locked = lock_images(names, path, reference=reference, adopt=adopt, relock=relock, sandbox=sandbox)
    for entry, differences in locked:
        _say("\n  ".join((f"{entry.toolchain}: {entry.reference} ({entry.state.value})", *differences)))


def _verify_verb(
    names: _AnyNames = None,
    *,
    images: _Images = _DIR,
    lock: _Lock = None,
    sandbox: _Sandbox = "auto",
    table: TableOptions,
) -> None:
    """Fail unless the images here are what the lock says. Named images must be there; others may be absent."""
    from kernel_matrix.api.images import require_verified, verify_images

    path = _lock_path(images, lock)
    checks = verify_images(names or [], images, path, sandbox=sandbox)
    _show([_row(check.entry, check) for check in checks], table)
    require_verified(checks, path, all_here=bool(names))


def _lock_path(images: Path, lock: Path | None) -> Path:
    return lock or images / "images.lock"


def _say(text: str) -> None:
    from kernel_matrix.cli.output import console

    console(stderr=True).print(text, markup=False)


def _pull(names: list[str], lock: Path, sandbox: str) -> None:
    from kernel_matrix.api.images import pull_images

    for pulled in pull_images(names, lock, say=_say, sandbox=sandbox):
        before, entry = pulled.before, pulled.entry
        change = "" if entry.state is before.state else f"; {before.state.value} → {entry.state.value}"
        _say(f"{pulled.name}: {entry.reference}, {pulled.size_bytes / 1e6:.0f} MB{change}")


def _unpack(names: list[str], archive: Path, lock: Path, sandbox: str) -> None:
    from kernel_matrix.api.images import unpack_image

    if len(names) > 1 or sandbox not in ("auto", "unpacked"):
        raise typer.BadParameter("one image at a time, for the sandbox `unpacked`", param_hint="--archive")
    image = unpack_image(names[0], archive, lock, say=_say)
    _say(f"{names[0]}: {image.id}, {image.size_bytes / 1e6:.0f} MB in {image.folder}")


def _build(name: str, images: Path, lock: Path, *, relock: bool) -> None:
    from kernel_matrix.api.images import build_image

    result = build_image(name, images_dir=images, lock_path=lock, relock=relock, say=_say)
    if result.reproduced:
        verdict = "reproduces the lock"
    elif result.differences:
        verdict = "\n  ".join((f"took the place of another image in {lock}:", *result.differences))
    else:
        verdict = f"entered in {lock}"
    size_mb = result.size_bytes / 1e6
    _say(f"{name}: {result.entry.reference}, {size_mb:.0f} MB, {result.seconds:.0f} s; {verdict}")


def _row(entry: LockEntry, check: LockCheck | None) -> dict[str, Any]:
    return {
        "toolchain": entry.toolchain,
        "state": entry.state.value,
        "reference": entry.reference,
        "digest": entry.digest,
        "config_digest": entry.config_digest,
        "here": check.presence.value if check else None,
        "size_bytes": check.size_bytes if check else None,
        "complaints": list(check.complaints) if check else [],
    }


def _show(rows: list[dict[str, Any]], table: TableOptions) -> None:
    from kernel_matrix.cli.table_writer import TableColumn, write_table

    def pin(row: Mapping[str, Any]) -> str:
        return ((row["config_digest"] if row["state"] == "local" else row["digest"]) or "")[7:19]

    columns = (
        TableColumn(name="toolchain"),
        TableColumn(name="state"),
        TableColumn(name="digest", text=pin, rank=2),
        TableColumn(name="here", text=lambda row: row["here"] or "?"),
        TableColumn(
            name="size_bytes",
            heading="MB",
            text=lambda row: "" if row["size_bytes"] is None else f"{row['size_bytes'] / 1e6:.0f}",
            is_number=True,
            rank=3,
        ),
        TableColumn(name="reference", text=lambda row: row["reference"].partition("@")[0], rank=1, shortest=20),
        TableColumn(name="complaints", text=lambda row: "; ".join(row["complaints"]), wraps=True, shortest=16),
    )
    write_table(rows, columns, table)
