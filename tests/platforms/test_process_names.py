"""Programs by the name that the kernel gives them."""

import os
import shutil
import subprocess

from kernel_matrix.platforms.cuda.modes import MPS_SERVER
from kernel_matrix.platforms.process_names import command


def test_process_name_is_the_file_name_up_to_15_characters(tmp_path):
    server = shutil.copy(shutil.which("sh"), tmp_path / "nvidia-cuda-mps-server")
    with subprocess.Popen((server, "-c", "echo; read _"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # before, it may still be the copy of this program that starts it
        assert command(process.pid) == MPS_SERVER == "nvidia-cuda-mps"


def test_a_process_that_is_not_there_has_no_name():
    with subprocess.Popen(("true",)) as process:
        process.wait()
    assert command(process.pid) == "name not readable"
    assert command(os.getpid()) != "name not readable"
