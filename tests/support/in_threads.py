"""Functions that run in several threads of Python at once."""

import threading


def in_threads(count, work):
    """Runs ``work(0)`` to ``work(count - 1)``, each in a thread of its own, until all have ended."""
    threads = [threading.Thread(target=work, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
