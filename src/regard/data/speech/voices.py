"""The generated corpus of speech: a formant synthesizer says words, and the time of each word is known.

The voice is a sum of harmonics whose amplitudes follow three resonances (Klatt 1980, a cascade of resonators, here as
magnitudes of a sum of sines); fricatives and bursts are noise with a spectrum that changes in time.
"""

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus_files import write_parts
from regard.data.speech.sounds import write_sound
from regard.data.speech.utterances import SEGMENTS
from regard.errors import UnknownNameError

RATE = 16_000
STEP = 80  # samples between two settings of the resonances: 5 ms
HIGHEST_FREQUENCY = 5_000.0  # Hz of the last harmonic
BANDWIDTHS = np.array([70.0, 100.0, 160.0])  # of the resonances, Hz
_GLIDE = 7  # steps over which one phone becomes the next

FEWEST_WORDS, MOST_WORDS = 2, 6
"""Words of an utterance."""


@dataclass(frozen=True)
class Phone:
    """A stretch of speech whose resonances stay near their targets.

    Attributes:
        seconds: duration at the speaker's normal speed.
        formants: the first three resonances in Hz, of a man's voice.
        voice: amplitude of the voice.
        noise: amplitude of the noise.
        center: frequency of the noise in Hz.
        width: standard deviation of the noise around it, in Hz.
    """

    seconds: float
    formants: tuple[float, float, float] = (500.0, 1500.0, 2500.0)
    voice: float = 0.0
    noise: float = 0.0
    center: float = 2000.0
    width: float = 1000.0


def _vowel(first: float, second: float, third: float, seconds: float = 0.12) -> Phone:
    return Phone(seconds, (first, second, third), voice=1.0)


PHONES: dict[str, Phone] = {
    # Vowels: means of 33 men (Peterson and Barney 1952, table II).
    "IY": _vowel(270, 2290, 3010), "IH": _vowel(390, 1990, 2550, 0.09), "EH": _vowel(530, 1840, 2480),
    "AA": _vowel(730, 1090, 2440), "AO": _vowel(570, 840, 2410), "UW": _vowel(300, 870, 2240),
    "AH": _vowel(640, 1190, 2390, 0.09),
    # Sounds that a voice makes with a narrower mouth.
    "R": Phone(0.07, (310, 1060, 1380), voice=0.6), "L": Phone(0.07, (360, 1000, 2700), voice=0.6),
    "W": Phone(0.06, (290, 610, 2150), voice=0.5), "Y": Phone(0.06, (260, 2070, 3020), voice=0.5),
    "N": Phone(0.08, (250, 1700, 2600), voice=0.35), "V": Phone(0.06, (280, 1400, 2300), 0.25, 0.05, 3500, 1500),
    "Z": Phone(0.09, (280, 1700, 2500), 0.25, 0.25, 5500, 1000),
    # Noise alone.
    "S": Phone(0.11, (300, 1700, 2500), 0.0, 0.5, 5800, 900),
    "F": Phone(0.09, (300, 1200, 2300), 0.0, 0.12, 4500, 2500),
    "TH": Phone(0.08, (300, 1400, 2500), 0.0, 0.09, 6200, 1800),
    "HH": Phone(0.06, (500, 1500, 2500), 0.0, 0.12, 1500, 900),
    # Closures, which are silent, and their bursts.
    "CL": Phone(0.05), "T": Phone(0.025, (300, 1700, 2600), 0.0, 0.5, 4200, 1200),
    "K": Phone(0.03, (300, 1800, 2400), 0.0, 0.45, 2000, 500), "P": Phone(0.02, (300, 900, 2200), 0.0, 0.4, 900, 500),
    "G": Phone(0.03, (300, 1900, 2400), 0.3, 0.25, 1900, 500),
}  # fmt: skip

WORDS: dict[str, str] = {
    "zero": "Z IH R AO UW", "one": "W AH N", "two": "CL T UW UW", "three": "TH R IY", "four": "F AO R",
    "five": "F AA IY V", "six": "S IH CL K S", "seven": "S EH V AH N", "eight": "EH IY CL T", "nine": "N AA IY N",
    "yes": "Y EH S", "no": "N AO UW", "stop": "S CL T AA CL P", "go": "CL G AO UW", "help": "HH EH L CL P",
}  # fmt: skip
"""Word → its phones; two vowels in a row are a diphthong."""


@dataclass(frozen=True)
class Voice:
    """A speaker.

    Attributes:
        pitch: in Hz.
        scale: of the resonances: 1 is a man's; above 1 a shorter vocal tract.
        speed: 1 is normal.
        melody: depth of the changes of pitch, a share of it.
        hiss: amplitude of the noise of the room.
    """

    pitch: float
    scale: float
    speed: float
    melody: float
    hiss: float

    @classmethod
    def draw(cls, random: np.random.Generator) -> "Voice":
        """Draws a random voice."""
        scale = random.uniform(0.92, 1.18)
        return cls(
            pitch=float(100.0 * (scale / 0.95) ** 3 * random.uniform(0.85, 1.15)),
            scale=float(scale),
            speed=float(random.uniform(0.8, 1.25)),
            melody=float(random.uniform(0.02, 0.12)),
            hiss=float(10 ** random.uniform(-4.0, -2.5)),
        )


@dataclass(frozen=True)
class Speech:
    """Spoken words.

    Attributes:
        samples: float32 ``[samples]``, `RATE` a second.
        segments: (start, end) of each word in seconds.
    """

    samples: NDArray[np.float32]
    segments: tuple[tuple[float, float], ...]


def speak(words: Sequence[str], voice: Voice, random: np.random.Generator) -> Speech:
    """Returns words as a voice says them, with short random pauses between them.

    Args:
        words: keys of `WORDS`.
        voice: the speaker.
        random: draws pauses and small variations.

    Raises:
        UnknownNameError: a word is not known.
    """
    pause = Phone(0.0)
    phones: list[tuple[Phone, float]] = [(pause, random.uniform(0.05, 0.3))]
    segments = []
    for word in words:
        if word not in WORDS:
            raise UnknownNameError("word", word, WORDS)
        start = _seconds(phones)
        stress = random.uniform(0.9, 1.15)
        for name in WORDS[word].split():
            phone = PHONES[name]
            phones.append((phone, phone.seconds * stress * random.uniform(0.85, 1.15) / voice.speed))
        segments.append((round(start, 4), round(_seconds(phones), 4)))
        phones.append((pause, random.uniform(0.02, 0.2)))
    phones.append((pause, random.uniform(0.05, 0.2)))
    track = _track(phones, voice, random)
    samples = _voiced(track, voice, random) + _noise(track, random)
    samples *= random.uniform(0.2, 0.8) / max(1e-9, float(np.abs(samples).max()))
    samples += voice.hiss * random.standard_normal(len(samples))
    return Speech(samples.astype(np.float32), tuple(segments))


@dataclass(frozen=True)
class _Track:
    """The settings of the synthesizer at each step."""

    formants: NDArray[np.float64]  # [steps, 3]
    voice: NDArray[np.float64]  # [steps]
    noise: NDArray[np.float64]
    center: NDArray[np.float64]
    width: NDArray[np.float64]


def _seconds(phones: Sequence[tuple[Phone, float]]) -> float:
    """Computes the duration of phones, each of a whole number of steps."""
    return sum(_steps(seconds) for _, seconds in phones) * STEP / RATE


def _steps(seconds: float) -> int:
    return max(1, round(seconds * RATE / STEP))


def _track(phones: Sequence[tuple[Phone, float]], voice: Voice, random: np.random.Generator) -> _Track:
    counts = [_steps(seconds) for _, seconds in phones]
    formants = np.array([phone.formants for phone, _ in phones]) * voice.scale
    formants *= random.uniform(0.96, 1.04, formants.shape)
    # A pause has the resonances of the phone before it.
    silent = [number for number, (phone, _) in enumerate(phones) if not (phone.voice or phone.noise)]
    for number in silent:
        formants[number] = formants[number - 1 if number else 1]
    columns = {
        name: np.repeat([getattr(phone, name) for phone, _ in phones], counts).astype(np.float64)
        for name in ("voice", "noise", "center", "width")
    }
    smooth = np.hanning(_GLIDE + 2)[1:-1]
    smooth /= smooth.sum()
    edge = _GLIDE // 2
    repeated = np.pad(np.repeat(formants, counts, axis=0), ((edge, edge), (0, 0)), mode="edge")
    glided = np.stack([np.convolve(column, smooth, "valid") for column in repeated.T], axis=1)
    for name in ("voice", "noise"):
        short = np.array([0.25, 0.5, 0.25])
        columns[name] = np.convolve(np.pad(columns[name], 1, mode="edge"), short, "valid")
    return _Track(glided, **columns)


def _voiced(track: _Track, voice: Voice, random: np.random.Generator) -> NDArray[np.float64]:
    steps = len(track.voice)
    time = np.arange(steps) * STEP / RATE
    wave = np.sin(2 * np.pi * (random.uniform(1.5, 3.0) * time + random.uniform()))
    falling = 1.0 - 0.15 * np.linspace(0, 1, steps)
    pitch = voice.pitch * falling * (1.0 + voice.melody * wave)
    positions, samples = np.arange(steps) * STEP, np.arange(steps * STEP)
    phase = 2 * np.pi * np.cumsum(np.interp(samples, positions, pitch)) / RATE
    voiced = np.zeros(len(samples))
    for harmonic in range(1, int(HIGHEST_FREQUENCY / pitch.min()) + 1):
        frequency = harmonic * pitch[:, None]
        squares = track.formants**2
        gain = np.prod(squares / np.sqrt((squares - frequency**2) ** 2 + (BANDWIDTHS * frequency) ** 2), axis=1)
        amplitude = track.voice * gain * (harmonic * pitch < HIGHEST_FREQUENCY) / harmonic
        voiced += np.interp(samples, positions, amplitude) * np.sin(harmonic * phase)
    return voiced


def _noise(track: _Track, random: np.random.Generator) -> NDArray[np.float64]:
    steps = len(track.noise)
    size = 4 * STEP
    window = np.hanning(size + 1)[:size]
    white = random.standard_normal(steps * STEP + size)
    frames = white[np.arange(steps)[:, None] * STEP + np.arange(size)] * window
    frequencies = np.fft.rfftfreq(size, 1 / RATE)
    shape = np.exp(-0.5 * ((frequencies - track.center[:, None]) / track.width[:, None]) ** 2)
    shaped = np.fft.irfft(np.fft.rfft(frames, axis=1) * shape * track.noise[:, None], size, axis=1) * window
    noise = np.zeros(steps * STEP + size)
    for part in range(4):  # every fourth frame follows without an overlap
        block = shaped[part::4].ravel()
        noise[part * STEP : part * STEP + len(block)] += block
    return noise[size // 2 : size // 2 + steps * STEP]


def utterance(part: str, number: int, seed: int, words: int | None = None) -> tuple[str, Speech]:
    """Returns one utterance of the corpus: its text and its sound.

    Args:
        part: name of the part.
        number: of the utterance in it; it does not depend on the size of the part.
        seed: seed of the corpus.
        words: how many are said; None: 2 to 6.
    """
    random = np.random.default_rng([seed, zlib.crc32(part.encode()), number])
    count = int(random.integers(FEWEST_WORDS, MOST_WORDS + 1)) if words is None else words
    chosen = [str(word) for word in random.choice(list(WORDS), size=count)]
    return " ".join(chosen), speak(chosen, Voice.draw(random), random)


def write_speech(
    folder: str | os.PathLike[str], sizes: Mapping[str, int], seed: int, words: int | None = None
) -> dict[str, Path]:
    """Writes the corpus: a TSV for each part with the columns ``audio``, ``text`` and ``segments``, and wav files.

    Args:
        folder: the folder; created if it does not exist. The sounds are in its folder ``sounds``.
        sizes: utterances of each part, e.g. ``{"train": 1000, "validation": 100, "test": 200}``.
        seed: as in `utterance`.
        words: words of each utterance; None: 2 to 6.

    Returns:
        the table of each part, ``<folder>/<part>.tsv``, which is written last: where it is, its sounds are.

    Raises:
        ArgumentError: a size is negative.
        DataError: the folder cannot be written.
    """
    sounds = Path(folder) / "sounds"

    def write(file: TextIO, part: str, size: int) -> None:
        sounds.mkdir(exist_ok=True)
        file.write(f"audio\ttext\t{SEGMENTS}\n")
        for number in range(size):
            text, speech = utterance(part, number, seed, words)
            name = f"{part}-{number:06d}.wav"
            write_sound(sounds / name, speech.samples, RATE)
            times = " ".join(f"{start:.3f}-{end:.3f}" for start, end in speech.segments)
            file.write(f"sounds/{name}\t{text}\t{times}\n")

    return write_parts(folder, sizes, ".tsv", write)
