"""Kernels that are forks of one process, which has imported PyTorch and regard: the imports outlast most pages' cells.

::

    python kernel_forks.py ADDRESS                that process, which listens there until its standard input ends
    python kernel_forks.py ADDRESS ARGUMENT...    asks it for a kernel with these, and ends when the kernel does
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import threading


def serve(address: str) -> None:
    kernels = None
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
            connection, _ = server.accept()
            kernels = kernels or imported()
            if os.fork() == 0:
                break
            connection.close()
        else:
            os.unlink(address)
            return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(connection, 2**16, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    folder, *arguments = json.loads(message)
    os.chdir(folder)
    threading.Thread(target=end_with, args=(connection,), daemon=True).start()
    kernels.launch_instance(argv=[*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])


def imported():
    """Imports what the cells of most pages do, those that train too. Returns the application of a kernel."""
    # A kernel chooses this before anything imports Matplotlib.
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    import datasets  # noqa: F401
    import lightning.fabric  # noqa: F401
    import matplotlib.figure  # noqa: F401
    from ipykernel.kernelapp import IPKernelApp

    import regard

    for name in regard.__all__:
        getattr(regard, name)
    gc.collect()
    gc.freeze()  # a kernel's collector would look at all modules, and copy their memory
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    return IPKernelApp


def end_with(connection: socket.socket) -> None:
    """Ends this kernel when the process that asked for it has ended."""
    connection.recv(1)
    os._exit(1)


def start(address: str, *arguments: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter interrupts a kernel before it asks it to end
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps([os.getcwd(), *arguments]).encode()], [0, 1, 2])
        connection.recv(1)


if __name__ == "__main__":
    run = serve if len(sys.argv) == 2 else start
    run(*sys.argv[1:])
