"""The command line: each command is a file, imported when it is called."""

import os
import signal
import sys

from regard.errors import RegardError
from regard.files.platforms import code_of_broken_pipe
from regard.training.signal_handler import exit_on_signals


@exit_on_signals()
def main() -> None:
    """Runs the command ``regard``, its entry point.

    A ``RegardError``, a mistake in the options, a refused file and a lack of memory become one line on standard error
    and exit code 2; a second line is the command that was meant, where that is known. An interrupt gives exit code 130.
    None of them shows a traceback.
    """
    try:
        try:
            from regard.cli.commands import call

            call(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except RegardError as error:
        _fail(str(error), getattr(error, "command", ""))
    except BrokenPipeError:
        # The reader has closed the output (`regard predict ... | head`); later flushes must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(code_of_broken_pipe())
    except OSError as error:
        path = "" if error.filename is None else f" {os.fspath(error.filename)}"
        _fail(f"the system refused{path}: {error.strerror or error}")
    except MemoryError:
        _fail("there is not enough memory for these sizes; choose smaller ones")
    except RuntimeError as error:
        # Only PyTorch's allocators use these words, for a lack of memory.
        if "allocate" not in str(error) and "out of memory" not in str(error):
            raise
        _fail(f"there is not enough memory for these sizes; choose smaller ones ({str(error).splitlines()[0]})")
    except KeyboardInterrupt:
        print("regard: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def _fail(message: str, command: str = "") -> None:
    """Prints a message as one line without invisible characters, the command that is right below, exits with code 2."""
    line = " ".join(message.split())
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    print(f"regard: error: {visible}", *filter(None, [command]), sep="\n", file=sys.stderr)
    sys.exit(2)
