"""The pictures of a transcriber: the attention of each word over the spectrogram, in seconds."""

from collections.abc import Iterable
from pathlib import Path

from regard.regular_file import path_inside
from regard.tasks.transcribe.trained_transcriber import Transcription


def draw_transcriptions(folder: Path, found: Iterable[Transcription], prefix: str = "sound") -> list[Path]:
    """Draw each transcription, as ``<prefix>-1.png``, ``<prefix>-2.png``, ...

    Args:
        folder: folder of the pictures; created if it does not exist.
        found: the transcriptions; those without words are left out.
        prefix: start of the file names.

    Returns:
        the files.
    """
    from regard.pictures import save, sound_alignment

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, one in enumerate(found, start=1):
        if not one.tokens:
            continue
        figure = sound_alignment(
            one.weights, one.sound.spectrogram(), one.tokens, one.sound.seconds, title=f"{one.sound.name}: {one.text}"
        )
        paths.append(save(figure, path_inside(folder, f"{prefix}-{number}.png")))
    return paths
