"""``kernel-matrix images``: the lock, and what the daemon has of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kernel_matrix.images import LockEntry
    from kernel_matrix.images.lock_check import LockCheck

_Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="Toolchains, each a folder under --images.")]
_AnyNames = Annotated[list[str] | None, typer.Argument(metavar="[NAME…]", help="Toolchains; all when none is named.")]
_Images = Annotated[Path, typer.Option("--images", metavar="DIR", help="Folder with one folder per toolchain.")]
_Lock = Annotated[Path | None, typer.Option("--lock", metavar="FILE", help="The lock; DIR/images.lock by default.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]
_Relock = Annotated[bool, typer.Option("--relock", help="Let another image take the place of the locked one.")]
_DIR = Path("images")


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    verbs = typer.Typer(help="Pinned images: list, build, pull, lock, verify.", no_args_is_help=True)
    app.add_typer(verbs, name="images")

    @verbs.command("list")
    def list_(*, images: _Images = _DIR, lock: _Lock = None, json: _Json = False) -> None:
        """Show the lock, and whether the daemon here has each image."""
        _list(images, _lock_path(images, lock), json=json)

    @verbs.command()
    def build(names: _Names, *, images: _Images = _DIR, lock: _Lock = None, relock: _Relock = False) -> None:
        """Build images from their folders; say whether the lock was reproduced."""
        for name in names:
            _build(name, images, _lock_path(images, lock), relock=relock)

    @verbs.command()
    def pull(names: _Names, *, images: _Images = _DIR, lock: _Lock = None) -> None:
        """Pull images by digest; a declared digest is confirmed by that, or refused."""
        _pull(names, _lock_path(images, lock))

    @verbs.command("lock")
    def lock_(
        names: _Names,
        *,
        images: _Images = _DIR,
        lock: _Lock = None,
        reference: Annotated[
            str | None, typer.Option(metavar="REPOSITORY:TAG", help="Registry image to pin; the locked one's tag else.")
        ] = None,
        adopt: Annotated[
            str | None, typer.Option(metavar="IMAGE", help="Pin an image that this daemon already has.")
        ] = None,
        relock: _Relock = False,
    ) -> None:
        """Resolve tags against their registry and pin what they mean, or adopt an image the daemon has."""
        _lock(names, _lock_path(images, lock), reference=reference, adopt=adopt, relock=relock)

    @verbs.command()
    def verify(names: _AnyNames = None, *, images: _Images = _DIR, lock: _Lock = None, json: _Json = False) -> None:
        """Fail unless what the daemon has is what the lock says. Named images must be there; others may be absent."""
        _verify(names or [], images, _lock_path(images, lock), json=json)


def _lock_path(images: Path, lock: Path | None) -> Path:
    return lock or images / "images.lock"


def _say(text: str) -> None:
    from kernel_matrix.cli.output import console  # noqa: PLC0415  # rich is loaded only when something is printed

    console(stderr=True).print(text, markup=False)


def _list(images: Path, lock: Path, *, json: bool) -> None:
    from kernel_matrix.errors import ImageError  # noqa: PLC0415  # --help stays fast
    from kernel_matrix.images.image_store import connect  # noqa: PLC0415  # same
    from kernel_matrix.images.lock_check import audit  # noqa: PLC0415  # same

    entries = _selected([], lock)
    findings: tuple[LockCheck, ...] = ()
    try:
        with connect() as client:
            findings = audit(entries.values(), images, client)
    except ImageError as error:
        _say(f"The daemon was not asked: {error}")
    rows = [_row(entry, _finding(findings, entry)) for entry in entries.values()]
    _show(rows, json=json)


def _build(name: str, images: Path, lock: Path, *, relock: bool) -> None:
    from kernel_matrix.images.image_build import build_image  # noqa: PLC0415  # --help stays fast

    result = build_image(name, images_dir=images, lock_path=lock, relock=relock, say=_say)
    if result.reproduced:
        verdict = "reproduces the lock"
    elif result.differences:
        verdict = "\n  ".join((f"took the place of another image in {lock}:", *result.differences))
    else:
        verdict = f"entered in {lock}"
    size_mb = result.size_bytes / 1e6
    _say(f"{name}: {result.entry.reference}, {size_mb:.0f} MB, {result.seconds:.0f} s; {verdict}")


def _pull(names: list[str], lock: Path) -> None:
    from kernel_matrix.images.image_store import connect  # noqa: PLC0415  # --help stays fast
    from kernel_matrix.images.lock import load_lock, save_lock  # noqa: PLC0415  # same
    from kernel_matrix.images.registry import pull_image  # noqa: PLC0415  # same

    wanted = _selected(names, lock)
    with connect() as client:
        for name, entry in wanted.items():
            pulled = pull_image(entry, client, _say)
            if pulled.entry != entry:
                save_lock(lock, load_lock(lock) | {name: pulled.entry})
            change = "" if pulled.entry.state is entry.state else f"; {entry.state.value} → {pulled.entry.state.value}"
            _say(f"{name}: {pulled.entry.reference}, {pulled.held.size_bytes / 1e6:.0f} MB{change}")


def _lock_one(name: str, before: LockEntry | None, client: Any, reference: str | None, adopt: str | None) -> LockEntry:
    from kernel_matrix.images.registry import adopt_image, lock_tag  # noqa: PLC0415  # --help stays fast

    return adopt_image(name, adopt, client) if adopt else lock_tag(name, before, reference, client)


def _lock(names: list[str], lock: Path, *, reference: str | None, adopt: str | None, relock: bool) -> None:
    from kernel_matrix.errors import UsageError  # noqa: PLC0415  # --help stays fast
    from kernel_matrix.images.image_store import connect  # noqa: PLC0415  # same
    from kernel_matrix.images.lock import load_lock, save_lock  # noqa: PLC0415  # same
    from kernel_matrix.images.registry import accept_change  # noqa: PLC0415  # same

    if ((reference or adopt) and len(names) > 1) or (reference and adopt):
        raise UsageError(
            "--reference and --adopt each pin one image for one toolchain.",
            next_step="Name one toolchain and one of them.",
        )
    with connect() as client:
        for name in names:
            before = load_lock(lock).get(name)
            after = _lock_one(name, before, client, reference, adopt)
            found = accept_change(before, after, relock=relock)
            save_lock(lock, load_lock(lock) | {name: after})
            _say("\n  ".join((f"{name}: {after.reference} ({after.state.value})", *found)))


def _verify(names: list[str], images: Path, lock: Path, *, json: bool) -> None:
    from kernel_matrix.errors import ImageError  # noqa: PLC0415  # --help stays fast
    from kernel_matrix.images.image_store import connect  # noqa: PLC0415  # same
    from kernel_matrix.images.lock_check import audit  # noqa: PLC0415  # same
    from kernel_matrix.images.resolve import ImagePresence  # noqa: PLC0415  # same

    entries = _selected(names, lock)
    with connect() as client:
        findings = audit(entries.values(), images, client)
    _show([_row(finding.entry, finding) for finding in findings], json=json)
    wrong = [
        (finding, why)
        for finding in findings
        for why in (*finding.complaints, *(["absent"] if finding.presence is ImagePresence.ABSENT and names else []))
    ]
    if wrong:
        text = "\n".join(f"    {finding.entry.toolchain}: {why}" for finding, why in wrong)
        raise ImageError(f"The images are not what {lock} says:\n{text}", next_step=wrong[0][0].next_step)


def _selected(names: list[str], lock: Path) -> dict[str, LockEntry]:
    from kernel_matrix.errors import UsageError  # noqa: PLC0415  # --help stays fast
    from kernel_matrix.images.lock import load_lock  # noqa: PLC0415  # same

    entries = load_lock(lock)
    if unknown := [name for name in names if name not in entries]:
        raise UsageError(
            f"{lock} has no toolchain {unknown[0]!r}.", next_step=f"It has {', '.join(entries) or 'none at all'}."
        )
    return {name: entries[name] for name in names} if names else entries


def _finding(findings: tuple[LockCheck, ...], entry: LockEntry) -> LockCheck | None:
    return next((finding for finding in findings if finding.entry is entry), None)


def _row(entry: LockEntry, finding: LockCheck | None) -> dict[str, Any]:
    return {
        "toolchain": entry.toolchain,
        "state": entry.state.value,
        "reference": entry.reference,
        "digest": entry.digest,
        "config_digest": entry.config_digest,
        "here": finding.presence.value if finding else None,
        "size_bytes": finding.size_bytes if finding else None,
        "complaints": list(finding.complaints) if finding else [],
    }


def _show(rows: list[dict[str, Any]], *, json: bool) -> None:
    from kernel_matrix.cli.output import console, print_json  # noqa: PLC0415  # rich is loaded only when something is printed

    if json:
        print_json(rows)
        return
    from rich.table import Table  # noqa: PLC0415  # same

    table = Table("toolchain", "state", "digest", "here", "MB", "reference", "complaints")
    for row in rows:
        pin = row["config_digest"] if row["state"] == "local" else row["digest"]
        size = f"{row['size_bytes'] / 1e6:.0f}" if row["size_bytes"] is not None else ""
        name = row["reference"].partition("@")[0]
        cells = (row["toolchain"], row["state"], (pin or "")[7:19], row["here"] or "?", size, name)
        table.add_row(*cells, "; ".join(row["complaints"]))
    console().print(table)
