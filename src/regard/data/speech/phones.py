"""The sounds of the generated speech: phones with their resonances, and words made of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
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
