"""A tiny corpus of feature files for tests: each word is a few frames in a pattern of its own, at a known time."""

import numpy as np

WORDS = ("ba", "do", "ki", "su")
WIDTH, HOP = 6, 0.01


def write_tones(folder, sizes, words=(1, 3), seed=1):
    """The table of each part, with the columns ``audio``, ``text`` and ``segments``."""
    patterns = np.random.default_rng(0).normal(size=(len(WORDS), WIDTH)) * 2
    found = {}
    for part, size in sizes.items():
        random = np.random.default_rng([seed, len(part)])
        lines = ["audio\ttext\tsegments\n"]
        for number in range(size):
            chosen = random.integers(0, len(WORDS), random.integers(words[0], words[1] + 1))
            frames, segments = [np.zeros((random.integers(2, 9), WIDTH))], []
            for word in chosen:
                start = sum(map(len, frames))
                frames.append(np.tile(patterns[word], (random.integers(10, 20), 1)))
                frames.append(np.zeros((random.integers(4, 9), WIDTH)))
                segments.append(f"{start * HOP:.2f}-{(start + len(frames[-2])) * HOP:.2f}")
            features = np.concatenate(frames) + 0.1 * random.normal(size=(sum(map(len, frames)), WIDTH))
            np.save(folder / f"{part}-{number}.npy", features.astype(np.float32))
            text = " ".join(WORDS[word] for word in chosen)
            lines.append(f"{part}-{number}.npy\t{text}\t{' '.join(segments)}\n")
        found[part] = folder / f"{part}.tsv"
        found[part].write_text("".join(lines))
    return found
