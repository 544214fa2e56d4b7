"""Kernels that run the cells speak over sockets of files: two that start at once could take the same port."""

import os
import tempfile
from uuid import uuid4

from jupyter_client import KernelManager
from nbclient import NotebookClient
from sphinx.application import Sphinx

create_kernel_manager = NotebookClient.create_kernel_manager


def create_local_manager(client: NotebookClient) -> KernelManager:
    manager = create_kernel_manager(client)
    manager.transport = "ipc"
    manager.connection_file = os.path.join(tempfile.gettempdir(), f"kernel-{uuid4().hex}.json")
    return manager


def setup(app: Sphinx) -> dict[str, bool]:
    if os.name != "nt":  # where such sockets do not exist
        NotebookClient.create_kernel_manager = create_local_manager
    return {"parallel_read_safe": True, "parallel_write_safe": True}
