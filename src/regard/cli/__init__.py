"""The command line: each command is a file, imported when it is called."""

import os
import signal
import sys

from regard.training.signal_handler import exit_on_signals


@exit_on_signals()
def main() -> None:
    """The entry point of ``regard``.

    A ``RegardError`` becomes one line on standard error and exit code 2; an interrupt, exit code 130; neither shows a
    traceback.
    """
    from regard.errors import RegardError

    try:
        from regard.cli.commands import app

        app(prog_name="regard")
    except RegardError as error:
        print(f"regard: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("regard: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader of the output has closed it (`regard predict ... | head`); later flushes must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
