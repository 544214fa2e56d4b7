"""Reads features that another program computed: a ``.npy`` file with a row for each frame."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.regular_file import require_regular

MOST_FRAMES = 360_000
"""Frames of the longest file that is read: an hour of 100 frames a second."""

MOST_FEATURES = 4096
"""Features of a frame, at most."""


def read_features(path: Path, name: str | None = None) -> NDArray[np.float32]:
    """The features of a sound, float32 ``[frames, features]``.

    Args:
        path: a file of ``numpy.save`` with two axes of real numbers. Pickled objects are never read.
        name: of the file, in messages. Default: the path.

    Raises:
        DataError: there is no such file, or it is truncated or of another form, or a number is not finite.
    """
    where = name or str(path)
    try:
        # Mapped: a file that is shorter than its header says is refused before memory is taken.
        require_regular(path, 8 * MOST_FRAMES * MOST_FEATURES + (1 << 20))  # numbers of 8 bytes, and a header
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"{where}: no such file; check the path") from error
    except IsADirectoryError as error:
        raise DataError(f"{where}: is a folder; name a .npy file") from error
    except (OSError, ValueError, EOFError, SyntaxError, OverflowError, MemoryError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise DataError(f"{where}: is not a whole .npy file of numbers ({reason}); write it again") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{where}: is an archive of arrays; save one array [frames, features] with numpy.save")
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise DataError(
            f"{where}: must hold real numbers [frames, features]; it holds {array.dtype} of shape {list(array.shape)}"
        )
    frames, features = array.shape
    if not 1 <= frames <= MOST_FRAMES or not 1 <= features <= MOST_FEATURES:
        raise DataError(
            f"{where}: must have 1 to {MOST_FRAMES:,} frames of 1 to {MOST_FEATURES:,} features; its shape is "
            f"{list(array.shape)}"
        )
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(found).all():
        frame, feature = np.argwhere(~np.isfinite(found))[0].tolist()
        raise DataError(f"{where}: feature {feature} of frame {frame} is not a finite number; correct or remove it")
    return found
