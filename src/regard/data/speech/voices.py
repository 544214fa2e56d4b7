"""A formant synthesizer: words as samples, with the time at which each is said.

The voice is a sum of harmonics whose amplitudes follow three resonances (Klatt 1980, a cascade of resonators, here as
magnitudes of a sum of sines); fricatives and bursts are noise with a spectrum that changes in time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.speech.phones import PHONES, WORDS, Phone
from regard.errors import UnknownNameError

RATE = 16_000
STEP = 80  # samples between two settings of the resonances: 5 ms
HIGHEST = 5_000.0  # Hz of the last harmonic
BANDWIDTHS = np.array([70.0, 100.0, 160.0])  # of the resonances, Hz
_GLIDE = 7  # steps over which one phone becomes the next


@dataclass(frozen=True, slots=True)
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
        """A random one."""
        scale = random.uniform(0.92, 1.18)
        return cls(
            pitch=float(100.0 * (scale / 0.95) ** 3 * random.uniform(0.85, 1.15)),
            scale=float(scale),
            speed=float(random.uniform(0.8, 1.25)),
            melody=float(random.uniform(0.02, 0.12)),
            hiss=float(10 ** random.uniform(-4.0, -2.5)),
        )


@dataclass(frozen=True, slots=True)
class Speech:
    """Spoken words.

    Attributes:
        samples: float32 ``[samples]``, `RATE` a second.
        segments: (start, end) of each word in seconds.
    """

    samples: NDArray[np.float32]
    segments: tuple[tuple[float, float], ...]


def speak(words: Sequence[str], voice: Voice, random: np.random.Generator) -> Speech:
    """Words as a voice says them, with short random pauses between them.

    Args:
        words: keys of `regard.data.speech.phones.WORDS`.
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


@dataclass(frozen=True, slots=True)
class _Track:
    """The settings of the synthesizer at each step."""

    formants: NDArray[np.float64]  # [steps, 3]
    voice: NDArray[np.float64]  # [steps]
    noise: NDArray[np.float64]
    center: NDArray[np.float64]
    width: NDArray[np.float64]


def _seconds(phones: Sequence[tuple[Phone, float]]) -> float:
    # Each phone has a whole number of steps.
    return sum(_steps(seconds) for _, seconds in phones) * STEP / RATE


def _steps(seconds: float) -> int:
    return max(1, round(seconds * RATE / STEP))


def _track(phones: Sequence[tuple[Phone, float]], voice: Voice, random: np.random.Generator) -> _Track:
    counts = [_steps(seconds) for _, seconds in phones]
    formants = np.array([phone.formants for phone, _ in phones]) * voice.scale
    formants *= random.uniform(0.96, 1.04, formants.shape)
    # A pause has the resonances of the phone beside it.
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
    places, samples = np.arange(steps) * STEP, np.arange(steps * STEP)
    phase = 2 * np.pi * np.cumsum(np.interp(samples, places, pitch)) / RATE
    found = np.zeros(len(samples))
    for harmonic in range(1, int(HIGHEST / pitch.min()) + 1):
        frequency = harmonic * pitch[:, None]
        squares = track.formants**2
        gain = np.prod(squares / np.sqrt((squares - frequency**2) ** 2 + (BANDWIDTHS * frequency) ** 2), axis=1)
        amplitude = track.voice * gain * (harmonic * pitch < HIGHEST) / harmonic
        found += np.interp(samples, places, amplitude) * np.sin(harmonic * phase)
    return found


def _noise(track: _Track, random: np.random.Generator) -> NDArray[np.float64]:
    steps = len(track.noise)
    size = 4 * STEP
    window = np.hanning(size + 1)[:size]
    white = random.standard_normal(steps * STEP + size)
    frames = white[np.arange(steps)[:, None] * STEP + np.arange(size)] * window
    frequencies = np.fft.rfftfreq(size, 1 / RATE)
    shape = np.exp(-0.5 * ((frequencies - track.center[:, None]) / track.width[:, None]) ** 2)
    shaped = np.fft.irfft(np.fft.rfft(frames, axis=1) * shape * track.noise[:, None], size, axis=1) * window
    found = np.zeros(steps * STEP + size)
    for part in range(4):  # every fourth frame follows without an overlap
        block = shaped[part::4].ravel()
        found[part * STEP : part * STEP + len(block)] += block
    return found[size // 2 : size // 2 + steps * STEP]
