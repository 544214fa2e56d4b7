"""The log-mel front end: a sound as the logarithms of its energies in bands of equal width on the mel scale."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError

FLOOR = 1e-10
"""Energies below this are raised to it: the logarithm of silence is finite."""


@dataclass(frozen=True)
class LogMel:
    """Energies of a sound in mel bands, as logarithms.

    .. math::

        x_t[n] = window[n] · (y[s_t + n] − preemphasis · y[s_t + n − 1]),    s_t = round((t + ½) hop) − ⌊length / 2⌋
        P_t[k] = |Σ_n x_t[n] exp(−2πi k n / N)|²
        E_t[b] = Σ_k H_b[k] P_t[k]
        features[t, b] = log max(E_t[b], 10^(−10))

    Davis and Mermelstein 1980, section II, without the cosine transform; the mel scale of O'Shaughnessy 1987,
    mel(f) = 2595 log₁₀(1 + f / 700); H_b are triangles with peaks of 1 between equidistant mels. The window is Hann's.
    Frame t is centred on the time (t + ½) · hop, so it belongs to the time from t · hop to (t + 1) · hop; samples
    before the first and after the last are 0. A sound of n samples has ⌈n / hop⌉ frames.

    Attributes:
        rate: samples a second of the sounds.
        bands: mel bands.
        window_seconds: length of a window.
        hop_seconds: time between two frames.
        lowest: lower limit of the first band, Hz.
        highest: upper limit of the last band, Hz; 0: half the rate.
        preemphasis: in [0, 1).

    Raises:
        ArgumentError: a number is out of its range, or a band would hold no frequency of the spectrum.
    """

    rate: int = 16_000
    bands: int = 40
    window_seconds: float = 0.025
    hop_seconds: float = 0.010
    lowest: float = 20.0
    highest: float = 0.0
    preemphasis: float = 0.97

    def __post_init__(self) -> None:
        if self.rate < 1 or self.bands < 1:
            raise ArgumentError(f"rate and bands must be at least 1; they are {self.rate} and {self.bands}")
        if not (self.hop >= 1 and self.length >= 2):
            raise ArgumentError(
                f"hop_seconds must be at least a sample and window_seconds two, at {self.rate} Hz; they are "
                f"{self.hop_seconds} and {self.window_seconds}"
            )
        if not 0 <= self.preemphasis < 1:
            raise ArgumentError(f"preemphasis must be in [0, 1); it is {self.preemphasis}")
        if not 0 <= self.lowest < self.top <= self.rate / 2:
            raise ArgumentError(
                f"lowest and highest must be 0 ≤ lowest < highest ≤ {self.rate / 2:g} Hz, half the rate; they are "
                f"{self.lowest:g} and {self.top:g}"
            )
        empty = np.flatnonzero(~self.filters.any(axis=1))
        if len(empty):
            raise ArgumentError(
                f"bands must be fewer: band {empty[0]} of {self.bands} holds no frequency of a spectrum of "
                f"{self.size // 2 + 1} points; or give a longer window"
            )

    @property
    def top(self) -> float:
        """The upper limit of the last band, Hz."""
        return self.highest or self.rate / 2

    @property
    def hop(self) -> float:
        """Samples between two frames; it need not be whole."""
        return self.hop_seconds * self.rate

    @property
    def length(self) -> int:
        """Samples of a window."""
        return round(self.window_seconds * self.rate)

    @property
    def size(self) -> int:
        """N, the points of the Fourier transform: a power of 2, at least twice the window's length.

        Zeros behind the window interpolate the spectrum, so that narrow bands hold a point of it.
        """
        return 1 << math.ceil(math.log2(max(2, 2 * self.length)))

    @cached_property
    def filters(self) -> NDArray[np.float64]:
        """H, ``[bands, N / 2 + 1]``."""
        edges = hertz(np.linspace(mel(np.asarray(self.lowest)), mel(np.asarray(self.top)), self.bands + 2))
        frequencies = np.arange(self.size // 2 + 1) * self.rate / self.size
        lower, peak, upper = (edges[first : first + self.bands, None] for first in range(3))
        rising, falling = (frequencies - lower) / (peak - lower), (upper - frequencies) / (upper - peak)
        return np.maximum(0.0, np.minimum(rising, falling))

    def frames(self, samples: int) -> int:
        """Returns the number of frames of a sound with this number of samples."""
        return math.ceil(samples / self.hop - 1e-9)

    def __call__(self, samples: NDArray[np.floating]) -> NDArray[np.float32]:
        """Computes the features of samples at ``rate``, float32 ``[frames, bands]``, in float64."""
        signal = np.asarray(samples, np.float64)
        emphasized = signal.copy()
        emphasized[1:] -= self.preemphasis * signal[:-1]
        window = np.hanning(self.length + 1)[: self.length]  # periodic
        starts = np.floor((np.arange(self.frames(len(signal))) + 0.5) * self.hop + 0.5).astype(int) - self.length // 2
        padded = np.pad(emphasized, (self.length, 2 * self.length))
        features = np.empty((len(starts), self.bands), np.float32)
        for first in range(0, len(starts), _BLOCK):
            chosen = starts[first : first + _BLOCK] + self.length
            windows = padded[chosen[:, None] + np.arange(self.length)] * window
            power = np.abs(np.fft.rfft(windows, self.size)) ** 2
            features[first : first + _BLOCK] = np.log(np.maximum(power @ self.filters.T, FLOOR))
        return features


_BLOCK = 4096  # frames whose spectra are in memory at once


def mel(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns frequencies on the mel scale (O'Shaughnessy 1987)."""
    return 2595.0 * np.log10(1.0 + hertz / 700.0)


def hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the frequencies in Hz of values on the mel scale."""
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
