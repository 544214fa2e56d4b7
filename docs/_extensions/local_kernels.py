"""How the kernels that run the cells are started, and how they speak."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from jupyter_client import KernelManager
from nbclient import NotebookClient
from sphinx.application import Sphinx

FORKS = Path(__file__).with_name("kernel_forks.py")

create_kernel_manager = NotebookClient.create_kernel_manager


def create_local_manager(client: NotebookClient) -> KernelManager:
    """A kernel speaks over sockets of files: two that start at once could take the same port."""
    manager = create_kernel_manager(client)
    manager.transport = "ipc"
    manager.connection_file = os.path.join(tempfile.gettempdir(), f"kernel-{uuid4().hex}.json")
    return manager


def fork_kernels(app: Sphinx) -> None:
    """Starts the process whose forks the kernels are; it ends with this one."""
    address = os.path.join(tempfile.gettempdir(), f"kernels-{uuid4().hex}")
    command = [sys.executable, "-P", FORKS, address]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", "the process that forks kernels ended"

    def create_forked_manager(client: NotebookClient) -> KernelManager:
        manager = create_local_manager(client)
        manager.kernel_spec.argv = [sys.executable, "-I", "-S", str(FORKS), address, "-f", "{connection_file}"]
        return manager

    NotebookClient.create_kernel_manager = create_forked_manager


def setup(app: Sphinx) -> dict[str, bool]:
    if os.name != "nt":  # where such sockets do not exist
        NotebookClient.create_kernel_manager = create_local_manager
    if sys.platform == "linux":  # elsewhere libraries start threads when they are imported
        app.connect("builder-inited", fork_kernels)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
