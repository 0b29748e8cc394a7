"""The real CPU image under the conditions of a cell: another uid, a read-only root, no network."""

from __future__ import annotations

import json
from typing import Any

import pytest
from docker import DockerClient

from kernel_matrix.images import ResolvedImage

# A machine without the image builds it first.
pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

_KERNEL = """
import torch, triton, triton.language as tl
@triton.jit
def scale_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, 2 * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)
x, y, out = torch.rand(1000), torch.rand(1000), torch.empty(1000)
scale_add[(triton.cdiv(1000, 256),)](x, y, out, 1000, BLOCK=256)
print(torch.allclose(out, 2 * x + y))
"""


def run(client: DockerClient, image: ResolvedImage, *command: str, **settings: Any) -> str:
    output: bytes = client.containers.run(
        image.id,
        list(command),
        user="65534:65534",
        read_only=True,
        network_mode="none",
        cap_drop=["ALL"],
        remove=True,
        **settings,
    )
    return output.decode().strip()


def test_torch_and_triton_import_where_nothing_is_writable(client: DockerClient, cpu_image: ResolvedImage) -> None:
    program = "import json, numpy, torch, triton; print(json.dumps([torch.__version__, triton.__version__]))"
    assert json.loads(run(client, cpu_image, "python", "-c", program)) == ["2.13.0+cpu", "3.7.1"]


def test_image_bytecode_is_unchecked(client: DockerClient, cpu_image: ResolvedImage) -> None:
    program = "import torch; print(open(torch.__cached__, 'rb').read(8)[4:].hex())"
    assert run(client, cpu_image, "python3", "-c", program) == "01000000"


def test_a_triton_kernel_runs_in_the_interpreter(client: DockerClient, cpu_image: ResolvedImage) -> None:
    # Triton reads a kernel's source from its file.
    script = (
        "import sys; open('/tmp/kernel.py', 'w').write(sys.argv[1]); import runpy; runpy.run_path('/tmp/kernel.py')"
    )
    environment = {"TRITON_INTERPRET": "1"}
    tmpfs = {"/tmp": "size=64m"}
    assert run(client, cpu_image, "python3", "-c", script, _KERNEL, environment=environment, tmpfs=tmpfs) == "True"


def test_nothing_of_the_building_machine_is_inside(client: DockerClient, cpu_image: ResolvedImage) -> None:
    left = run(
        client, cpu_image, "sh", "-c", "ls /build /var/log /var/lib/apt/lists /etc/apt/sources.list 2>/dev/null; true"
    )
    assert [line for line in left.splitlines() if line and not line.endswith(":")] == []


def test_the_environment_says_what_the_compiler_does(client: DockerClient, cpu_image: ResolvedImage) -> None:
    environment = client.images.get(cpu_image.id).attrs["Config"]["Env"]
    assert {"TRITON_DEFAULT_FP_FUSION=1", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"} <= set(environment)
