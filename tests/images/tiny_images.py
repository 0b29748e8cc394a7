"""Images, wheels and a registry small enough for tests."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

from docker import DockerClient
from docker.errors import APIError

from kernel_matrix.images import LockEntry, LockState
from kernel_matrix.images.archive import SOURCE_DATE_EPOCH, ImageArchive, write_archive
from kernel_matrix.images.layer import write_layer

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
MakeImage = Callable[..., ImageArchive]
TOKEN, ACCOUNT = "Bearer secret", "Basic bWU6cGFzcw=="
"""What requests to :class:`Registry` carry after logging in: its token, or the name `me` and the password `pass`."""


def tar_of(path: Path, files: dict[str, bytes], **more: Any) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = more.get("mode", 0o644)
            archive.addfile(info, io.BytesIO(data))
    return path


def make_archive(tree: Path, repository: str = "kernel-matrix-test/tiny", path: str = "/bin") -> ImageArchive:
    """Write an image of one layer with the files of the tar file ``tree`` beside that; ``path`` is its ``PATH``."""
    content = tree.with_name("layer.tar")
    layer = write_layer(tree, content, newest_s=SOURCE_DATE_EPOCH)
    return write_archive(
        tree.with_name("image.tar"),
        layer,
        content,
        repository=repository,
        config={"Env": [f"PATH={path}"], "Cmd": ["sh"]},
        created_s=SOURCE_DATE_EPOCH,
    )


def local_entry(archive: ImageArchive, toolchain: str = "tiny") -> LockEntry:
    """The entry of a lock that pins ``archive`` as a local image."""
    return LockEntry(
        toolchain=toolchain,
        reference=archive.reference,
        state=LockState.LOCAL,
        digest=archive.manifest_digest,
        config_digest=archive.config_digest,
    )


def forget(client: DockerClient, name: str) -> None:
    with suppress(APIError):
        client.images.remove(name, force=True)


def shell_files(python_says: str) -> dict[str, bytes]:
    """Make a small root with this machine's sh and a ``python3`` that prints a fixed text."""
    shell = Path(shutil.which("dash") or "/bin/sh").resolve()
    listed = subprocess.run(("ldd", str(shell)), capture_output=True, text=True, check=True).stdout
    libraries = [Path(path) for path in re.findall(r"(/\S+) \(0x", listed)]
    files = {str(path).lstrip("/"): path.read_bytes() for path in libraries}
    return files | {
        "bin/sh": shell.read_bytes(),
        "bin/python3": f"#!/bin/sh\necho '{python_says}'\n".encode(),
    }


@dataclass
class Registry:
    """Registry with the part of the distribution protocol that a pull needs."""

    port: int
    blobs: dict[str, bytes] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    scheme: str = ""
    """Way of logging in that is wanted, ``Bearer`` or ``Basic``; empty for none."""
    asked: list[str] = field(default_factory=list)
    """Paths of all requests."""
    encodings: set[str | None] = field(default_factory=set)
    """What they accept as encodings."""
    accounts: list[str | None] = field(default_factory=list)
    """Account with which each token was asked for."""

    def push(self, archive: ImageArchive, name: str, tag: str) -> str:
        """Serve ``archive`` as ``name:tag``; return ``host:port/name:tag@digest``."""
        with tarfile.open(archive.path) as tar:
            for member in tar.getmembers():
                if member.name.startswith("blobs/"):
                    content = tar.extractfile(member)
                    assert content is not None
                    self.blobs["sha256:" + member.name.rpartition("/")[2]] = content.read()
        self.tags[f"{name}:{tag}"] = archive.manifest_digest
        return f"127.0.0.1:{self.port}/{name}:{tag}@{archive.manifest_digest}"

    def find(self, path: str) -> tuple[bytes, str] | None:
        match = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/(.+)", path)
        if not match:
            return (b"{}", "application/json") if path in ("/v2", "/v2/") else None
        name, kind, key = match.groups()
        data = self.blobs.get(self.tags.get(f"{name}:{key}", key))
        return (data, MANIFEST if kind == "manifests" else "application/octet-stream") if data is not None else None


class Handler(BaseHTTPRequestHandler):
    registry: ClassVar[Registry]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.registry.asked.append(self.path)
        self.registry.encodings.add(self.headers["Accept-Encoding"])
        if self.path.startswith("/token?"):
            self.registry.accounts.append(self.headers["Authorization"])
            self._send(200, json.dumps({"token": "secret"}).encode(), "application/json", body=body)
        elif self.registry.scheme and self.headers["Authorization"] not in (TOKEN, ACCOUNT):
            realm = f'realm="http://127.0.0.1:{self.registry.port}/token",service="lab"'
            self._send(401, b"{}", "application/json", body=body, challenge=f"{self.registry.scheme} {realm}")
        else:
            self._find(body=body)

    def _find(self, *, body: bool) -> None:
        found = self.registry.find(self.path)
        unknown = json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}).encode()
        data, kind = found or (unknown, "application/json")
        self._send(200 if found else 404, data, kind, body=body)

    def _send(self, status: int, data: bytes, kind: str, *, body: bool, challenge: str = "") -> None:
        self.send_response(status)
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(data).hexdigest()}")
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_args: object) -> None:
        pass


def make_wheel(folder: Path, name: str = "tiny", version: str = "1.0") -> tuple[Path, str]:
    """Write a wheel without content; return it and its SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def write_recipe(folder: Path, base: str, wheel_sha256: str, run: str = "") -> None:
    """Write a toolchain's folder whose image is ``base`` plus the result of the commands ``run``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Dockerfile").write_text(f"FROM {base}\nCOPY wheels /wheels\nENV TINY=1\n{run}\n")
    (folder / "requirements.lock").write_text(f"tiny==1.0 --hash=sha256:{wheel_sha256}\n")
    (folder / "image.toml").write_text('python = "3.11"\n')
