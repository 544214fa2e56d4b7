"""Groups of processes, which the tests of a file share."""

import pytest

from process_groups import ProcessGroup


@pytest.fixture(scope="module")
def groups():
    """A group of each size, started when it is first used."""
    started = {}

    def group(processes):
        if processes not in started:
            started[processes] = ProcessGroup(processes)
        return started[processes]

    yield group
    for one in started.values():
        one.close()
    # No exchange is left over that waits.
    assert all(process.exitcode == 0 for one in started.values() for process in one.processes)
