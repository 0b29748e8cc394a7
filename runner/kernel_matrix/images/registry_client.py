"""Read images from a registry by the protocol of the OCI distribution specification, without a daemon."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from requests.exceptions import RequestException

from kernel_matrix.file_hash import content_digest
from kernel_matrix.images import PullError
from kernel_matrix.untrusted_json import UntrustedJsonError, parse_object

if TYPE_CHECKING:
    from typing_extensions import Self

_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_LARGEST_DOCUMENT_BYTES = 8 << 20
_OTHER_CONTENT = "the registry serves other content as"
_CHUNK_BYTES = 1 << 20
_TIMEOUTS_S = (10, 120)
"""To connect, and between two pieces of an answer."""
_UNAUTHORIZED, _NOT_FOUND = 401, 404
_HUB, _HUB_HOST = "docker.io", "registry-1.docker.io"
_HUB_LOGIN = "https://index.docker.io/v1/"
"""Under this name a Docker configuration keeps the password of the hub."""
_LOCAL = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")
"""Registries of this machine, which are asked without TLS, as Docker does."""
_DIGEST = re.compile("sha256:[0-9a-f]{64}")  # it names a file of the cache
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class RemoteBlob:
    """A part of an image in a registry."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class RemoteImage:
    """The image of one platform."""

    manifest_digests: tuple[str, ...]
    """Of its manifest, and of the index by which that was found."""
    config: RemoteBlob
    layers: tuple[RemoteBlob, ...]


class RegistryClient:
    """Reads one repository; each answer is checked against its digest."""

    def __init__(self, repository: str) -> None:
        """Prepare to read ``repository``, such as ``pytorch/pytorch`` or ``host:5000/name``; nothing is sent yet."""
        host, self._name = split_repository(repository)
        self._login = _HUB_LOGIN if host == _HUB else host
        host = _HUB_HOST if host == _HUB else host
        self._scheme = "http" if _LOCAL.fullmatch(host) else "https"
        self._base = f"{self._scheme}://{host}/v2/{self._name}"
        self._session = requests.Session()
        self._authorization = ""
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def resolve(self, tag: str) -> str:
        """Return the digest of the manifest or index that ``tag`` names now.

        Raises:
            PullError: The registry does not answer, or has no such tag.
        """
        return content_digest(self._document("manifests", tag))

    def image(self, digest: str, platform: str) -> RemoteImage:
        """Read the manifest ``digest``; of an index, the manifest for ``platform``, such as ``linux/amd64``.

        Raises:
            PullError: The registry does not have it, or serves other content.
        """
        document = self._json("manifests", digest)
        if document.get("mediaType") in _INDEXES or "manifests" in document:
            inner = _manifest_for(document, platform, digest)
            return _remote_image(self._json("manifests", inner), (inner, digest))
        return _remote_image(document, (digest,))

    def read(self, blob: RemoteBlob) -> bytes:
        """Read a small blob.

        Raises:
            PullError: The registry does not have it, or serves other content.
        """
        return self._checked("blobs", blob.digest)

    def download(self, blob: RemoteBlob, target: Path) -> None:
        """Write a blob to ``target``; after an error there may be a part of it.

        Raises:
            PullError: The registry does not have it, or serves other content, or :meth:`stop` was called.
            OSError: It cannot be written.
        """
        digest, written = hashlib.sha256(), 0
        with self._get("blobs", blob.digest) as response, target.open("wb") as file:
            for chunk in _chunks(response):
                written += len(chunk)
                if self._stopped.is_set() or written > blob.size:
                    break
                digest.update(chunk)
                file.write(chunk)
        if f"sha256:{digest.hexdigest()}" != blob.digest or written != blob.size:
            stopped = self._stopped.is_set()
            raise PullError(f"{'the download was stopped:' if stopped else _OTHER_CONTENT} {blob.digest}")

    def stop(self) -> None:
        """End all downloads of other threads soon."""
        self._stopped.set()

    def _json(self, kind: str, digest: str) -> dict[str, Any]:
        try:
            return parse_object(self._checked(kind, digest))
        except UntrustedJsonError as error:
            raise PullError(f"{digest} {error}") from error

    def _checked(self, kind: str, digest: str) -> bytes:
        content = self._document(kind, digest)
        if content_digest(content) != digest:
            raise PullError(f"{_OTHER_CONTENT} {digest}")
        return content

    def _document(self, kind: str, key: str) -> bytes:
        with self._get(kind, key) as response:
            content = b""
            for chunk in _chunks(response):
                content += chunk
                if len(content) > _LARGEST_DOCUMENT_BYTES:
                    raise PullError(f"{key} is larger than {_LARGEST_DOCUMENT_BYTES >> 20} MiB")
            return content

    @contextmanager
    def _get(self, kind: str, key: str) -> Iterator[requests.Response]:
        """Ask for a manifest or blob, and log in first if the registry wants that."""
        url = f"{self._base}/{kind}/{key}"
        try:
            response = self._ask(url)
            if response.status_code == _UNAUTHORIZED:
                response.close()
                self._log_in(response.headers.get("WWW-Authenticate", ""))
                response = self._ask(url)
            with response:
                if response.status_code == _NOT_FOUND:
                    raise PullError(f"{kind.rstrip('s')} unknown: {key} is not found")
                if not response.ok:
                    raise PullError(f"{url} answers {response.status_code} {response.reason}")
                yield response
        except RequestException as error:
            raise PullError(str(error)) from error

    def _ask(self, url: str) -> requests.Response:
        # The bytes as they are, since the library would decompress an encoding of the transport.
        headers = {"Accept": ", ".join((*_INDEXES, *_MANIFESTS)), "Accept-Encoding": "identity"}
        if self._authorization:
            headers["Authorization"] = self._authorization
        return self._session.get(url, headers=headers, stream=True, timeout=_TIMEOUTS_S)

    def _log_in(self, challenge: str) -> None:
        """Get a token as the registry asks for it, with the name and password of Docker's configuration if it has one.

        Raises:
            PullError: There is no token, or a password would be sent in the clear.
        """
        scheme, _, rest = challenge.partition(" ")
        wanted = dict(_PARAMETER.findall(rest))
        account = _account(self._login)
        if scheme.lower() == "basic" and account:
            self._authorization = "Basic " + base64.b64encode(":".join(account).encode()).decode()
        elif scheme.lower() == "bearer" and urlsplit(wanted.get("realm", "")).scheme in ("https", self._scheme):
            self._authorization = f"Bearer {self._token(wanted, account)}"
        else:
            raise PullError("unauthorized: the registry wants a password; `docker login` keeps one")

    def _token(self, wanted: Mapping[str, str], account: tuple[str, str] | None) -> str:
        parameters = {"scope": f"repository:{self._name}:pull"}
        if "service" in wanted:
            parameters["service"] = wanted["service"]
        answer = self._session.get(wanted["realm"], params=parameters, auth=account, timeout=_TIMEOUTS_S)
        try:
            found = parse_object(answer.content) if answer.ok else {}
        except UntrustedJsonError as error:
            raise PullError(f"unauthorized: the answer of {wanted['realm']} {error}") from error
        token = found.get("token") or found.get("access_token")
        if not isinstance(token, str):
            raise PullError(f"unauthorized: {wanted['realm']} answers {answer.status_code} {answer.reason}")
        return token


def split_repository(repository: str) -> tuple[str, str]:
    """Split a repository into the registry's host and the name there, as Docker does: ``torch/x`` is of its hub."""
    first, slash, rest = repository.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        host, name = first, rest
    else:
        host, name = _HUB, repository
    return host, name if host != _HUB or "/" in name else f"library/{name}"


def _account(login: str) -> tuple[str, str] | None:
    """Return name and password of a registry in Docker's configuration; ``None`` if it has none."""
    from docker.auth import load_config  # noqa: PLC0415  # the SDK takes 0.2 s to import
    from docker.errors import DockerException  # noqa: PLC0415  # same

    try:
        found = load_config().resolve_authconfig(login) or {}
    except DockerException as error:
        raise PullError(f"unauthorized: Docker's configuration does not give a password: {error}") from error
    name, password = found.get("username"), found.get("password")
    return (name, password) if name and password else None


def _chunks(response: requests.Response) -> Iterator[bytes]:
    return response.iter_content(_CHUNK_BYTES)


def _manifest_for(index: Mapping[str, Any], platform: str, digest: str) -> str:
    """Return the digest of the manifest for ``platform`` in an index."""
    try:
        for manifest in index["manifests"]:
            found = manifest.get("platform", {})
            if f"{found.get('os')}/{found.get('architecture')}" == platform:
                return str(manifest["digest"])
    except (KeyError, TypeError, AttributeError) as error:
        raise PullError(f"{digest} is no index of images") from error
    raise PullError(f"{digest} has no image for {platform}")


def _remote_image(manifest: Mapping[str, Any], digests: tuple[str, ...]) -> RemoteImage:
    try:
        config, layers = _blob(manifest["config"]), tuple(map(_blob, manifest["layers"]))
    except (KeyError, TypeError, ValueError) as error:
        raise PullError(f"{digests[0]} is no manifest of an image") from error
    return RemoteImage(digests, config, layers)


def _blob(descriptor: Mapping[str, Any]) -> RemoteBlob:
    digest, size = str(descriptor["digest"]), int(descriptor["size"])
    if not _DIGEST.fullmatch(digest):
        raise ValueError(digest)
    return RemoteBlob(digest, size)
