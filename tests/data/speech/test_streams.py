"""A sound is read to the end of what is there, whatever its header says of its length; a file that was cut off is not.

What other programs write is made here byte by byte; the bytes were compared with files of these programs.
"""

import io
import logging
import struct

import numpy as np
import pytest
import soundfile

from regard.data.speech.sounds import read_features, read_sound
from regard.errors import DataError

RATE = 16_000
SAMPLES = (0.4 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)).astype(np.float32)

# What stands for an unknown number of bytes: espeak-ng 1.51 and sox 14.4.2 (WAV), sox (3 channels of 24 bits; AIFF),
# arecord 1.2.8 (2 GiB), ffmpeg 5.1 (WAV; W64), AU by its specification, and 0 (ffmpeg: AIFF, RF64).
PLACEHOLDERS = (0x7FFFF000, 0x7FFFEFFF, 0x7F000008, 0x80000000, 0x7FFFFFFF, 0xFFFFFFFF, 0)


def written(form, subtype="PCM_16", samples=SAMPLES, rate=RATE, **options):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=form, subtype=subtype, **options)
    return buffer.getvalue()


def patched(content, position, form, value):
    changed = bytearray(content)
    struct.pack_into(form, changed, position, value)
    return bytes(changed)


def read(content):
    return read_sound(content, name="a")


def same_as(content, expected):
    """The expectation comes from soundfile alone, which reads a file whose header is right."""
    found = read(content)
    np.testing.assert_array_equal(found.samples, soundfile.read(io.BytesIO(expected), dtype="float32")[0])
    assert found.rate == RATE


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT", "ULAW", "IMA_ADPCM"])
def test_wav_from_a_pipe(subtype, placeholder, whole):
    content = written("WAV", subtype)
    size = content.index(b"data") + 4
    piped = patched(content, size, "<I", placeholder)
    if whole:  # the size of the file is unknown as well
        piped = patched(piped, 4, "<I", (placeholder + 36) % 2**32 if placeholder else 0)
    same_as(piped, content)


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_aiff_and_au_from_a_pipe(placeholder):
    content = written("AIFF")
    piped = patched(content, content.index(b"SSND") + 4, ">I", placeholder)
    piped = patched(piped, content.index(b"COMM") + 10, ">I", placeholder // 2)
    same_as(patched(piped, 4, ">I", placeholder), content)
    for endian, order in (("BIG", ">"), ("LITTLE", "<")):
        content = written("AU", endian=endian)
        same_as(patched(content, 8, f"{order}I", placeholder), content)


@pytest.mark.parametrize("size", [-1, 2**63 - 1, 0])
def test_w64_and_caf_from_a_pipe(size):
    content = written("W64")
    piped = patched(content, content.index(b"data") + 16, "<q", size)
    same_as(patched(piped, 16, "<q", size), content)
    content = written("CAF")
    same_as(patched(content, content.index(b"data") + 4, ">q", size), content)


@pytest.mark.parametrize("form", ["W64", "CAF"])
def test_headers_that_are_written_again(form):
    """sox 14.4.2 writes them before and behind the samples, where it would go back to the first one."""
    content = written(form)
    body = content.index(b"data") + (24 if form == "W64" else 16)
    head = content[:body]
    size = body - 8 if form == "W64" else body - 12
    empty = patched(head, size, "<q" if form == "W64" else ">q", 23 if form == "W64" else 4)
    same_as(empty + empty + content[body:] + head, content)


@pytest.mark.parametrize("sizes", [(0, 0), (2**64 - 1, 2**64 - 1), (32_100, 32_000)])
def test_a_stream_of_rf64_is_that_of_wav(sizes):
    """ffmpeg 5.1 leaves zeros in a pipe."""
    wav = written("WAV")
    ds64 = b"ds64" + struct.pack("<IQQQI", 28, *sizes, 0, 0)
    content = b"RF64" + b"\xff" * 4 + b"WAVE" + ds64 + wav[12:40] + b"\xff" * 4 + wav[44:]
    same_as(content, wav)
    same_as(content.replace(b"RF64", b"BW64", 1), wav)


def test_samples_go_on_as_far_as_the_size_of_the_file_says():
    content = written("WAV")
    same_as(patched(content, 40, "<I", 8000), content)
    content = written("AIFF")
    same_as(patched(content, content.index(b"SSND") + 4, ">I", 8000), content)
    content = written("AU")
    same_as(patched(content, 8, ">I", 8000), content)


def test_chunks_behind_the_samples_are_no_samples(caplog):
    """Names and pictures may follow, with the padding of an odd number of bytes or without it; so may zeros."""
    content = written("WAV", "PCM_24", SAMPLES[:333])  # 999 bytes
    assert content[40:44] == struct.pack("<I", 999)
    pictures = b"LIST" + struct.pack("<I", 10) + b"0123456789"
    with caplog.at_level(logging.WARNING, "regard"):
        for padding in (b"\0", b""):
            grown = content[:1043] + padding + pictures
            same_as(patched(grown, 4, "<I", len(grown) - 8), content)
            same_as(grown, content)
        same_as(content + b"TAG" + bytes(125), content)
        same_as(content + bytes(4000), content)
        assert not caplog.records
        same_as(content + b"what is this", content)
    assert "a: left out the last 12 bytes, which are neither sound nor tags" in caplog.text


def test_an_empty_sound_with_a_chunk_behind_it_is_empty():
    content = written("WAV", samples=SAMPLES[:0])
    with pytest.raises(DataError, match="a: holds no samples"):
        read(content + b"LIST" + struct.pack("<I", 10) + b"0123456789")


def flac_field(content):
    """Where the four bits of the sample size and the 36 of the number of samples are."""
    return content.index(b"fLaC") + 21


def with_flac_samples(content, samples):
    (bits,) = struct.unpack(">Q", b"\0\0\0" + content[flac_field(content) : flac_field(content) + 5])
    field = (bits >> 36 << 36 | samples).to_bytes(5, "big")
    return content[: flac_field(content)] + field + content[flac_field(content) + 5 :]


@pytest.mark.parametrize("samples", [1, 191, 4095, 4096, 4097, 16_000])
@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
def test_flac_without_its_length(subtype, samples):
    """sox 14.4.2 and ffmpeg 5.1 leave 0 in a pipe; libsndfile takes it for 2⁶³ − 1."""
    content = written("FLAC", subtype, np.random.default_rng(samples).uniform(-1, 1, samples))
    same_as(with_flac_samples(content, 0), content)
    if samples > 1:
        same_as(with_flac_samples(content, samples // 2), content)
    tag = b"ID3\x04\0\0\0\0\0\x05" + b"12345"
    same_as(tag + with_flac_samples(content, 0) + b"TAG" + bytes(125), content)


def test_flac_that_was_cut_off_is_noticed_without_its_length():
    content = written("FLAC")
    for known in (content, with_flac_samples(content, 0)):
        for end in (len(content) - 1, len(content) // 2):
            with pytest.raises(DataError, match=r"a: is truncated|damaged \(flac decoder lost sync"):
                read(known[:end])
    with pytest.raises(DataError, match="16,000 of 20,000 samples"):
        read(with_flac_samples(content, 20_000))


def mpeg_frames(content):
    """The frames of MP3, as the tables of the standards say: layer III of version 1, 2 or 2.5."""
    frames, position = [], 0
    while position + 4 <= len(content):
        head = content[position : position + 4]
        assert head[0] == 0xFF
        version = head[1] >> 3 & 3
        rates = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}[version]
        kilobits = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
        kilobits = kilobits if version == 3 else (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
        samples = 144_000 if version == 3 else 72_000
        size = samples * kilobits[head[2] >> 4] // rates[head[2] >> 2 & 3] + (head[2] >> 1 & 1)
        frames.append(content[position : position + size])
        position += size
    return frames


def mp3(seconds=1, rate=16_000, channels=1, **options):
    """Silence and then noise, so that the first frames are smaller than the others."""
    noise = np.random.default_rng(1).uniform(-0.5, 0.5, (round(seconds * rate), 1))
    samples = np.repeat(noise * np.linspace(0, 1, len(noise))[:, None] ** 4, channels, axis=1)
    options = {"bitrate_mode": "VARIABLE", "compression_level": 0.5} | options
    return written("MP3", "MPEG_LAYER_III", samples, rate, **options)


def decoded(content):
    return soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)[0].mean(1, dtype=np.float64)


@pytest.mark.parametrize(
    ("rate", "channels"), [(8_000, 1), (16_000, 1), (16_000, 2), (24_000, 2), (32_000, 1), (44_100, 1), (48_000, 2)]
)
@pytest.mark.parametrize("seconds", [0.1, 1, 15])
def test_mp3_of_a_variable_rate_without_its_index(seconds, rate, channels):
    """libsndfile 1.2.2 estimates the number of frames: a second is cut to a part, 15 s are refused.

    With the index (of LAME 3.100), its decoder leaves out the delays of encoder and decoder (528 + 1 samples, and those
    that the index says) and what fills the last frame; the rest is the same but for its rounding.
    """
    content = mp3(seconds, rate, channels)
    index, *frames = mpeg_frames(content)
    assert b"Xing" in index
    found = read(b"".join(frames))
    assert len(found.samples) == len(frames) * (1152 if rate >= 32_000 else 576)
    delays = index[index.index(b"Xing") + 120 + 21 :][:3]
    start = 529 + (int.from_bytes(delays, "big") >> 12)
    expected = decoded(content).astype(np.float32)
    np.testing.assert_allclose(found.samples[start : start + len(expected)], expected, atol=1e-6)
    np.testing.assert_allclose(read(content).samples, expected, atol=1e-6)


@pytest.mark.parametrize("count", [0, 3, 10_000, 0xFFFFFFFF])
def test_mp3_with_an_index_of_another_number_of_frames(count):
    content = mp3()
    _index, *frames = mpeg_frames(content)
    changed = patched(content, content.index(b"Xing") + 8, ">I", count)
    if count == 10_000:
        with pytest.raises(DataError, match=f"a: is truncated: {len(frames)} of 10,000 frames are there"):
            read(changed)
    else:
        assert len(read(changed).samples) == 576 * len(frames)


def test_mp3_between_tags():
    frames = mpeg_frames(mp3())[1:]
    picture = b"ID3\x03\0\0\0\x02\x01\x00" + b"\xff\xd8\xff\xe0" * 4096 * 2  # 2 · 2¹⁴ + 2⁷ bytes are said
    for content in (
        picture + bytes(128) + b"".join(frames),
        b"".join(frames) + b"TAG" + bytes(125),
        b"".join(frames[:9]) + picture + bytes(128) + b"".join(frames[9:]),
        b"".join(frames[:9]) + b"nonsense" + b"".join(frames[9:]),
    ):
        np.testing.assert_array_equal(read(content).samples, read(b"".join(frames)).samples)
    with pytest.raises(DataError, match="a: is truncated: its last frame is not whole"):
        read(b"".join(frames)[:-1])


@pytest.mark.parametrize("size", [None, 0, 0xFFFFFFFF])
def test_mp3_in_wav(size):
    """libsndfile estimates here as well."""
    frames = b"".join(mpeg_frames(mp3())[1:])
    form = struct.pack("<HHIIHHHHIHHH", 0x55, 1, RATE, 2000, 576, 0, 12, 1, 2, 576, 1, 1105)
    data = b"data" + struct.pack("<I", len(frames) if size is None else size) + frames
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + data
    content = b"RIFF" + struct.pack("<I", len(body)) + body
    np.testing.assert_array_equal(read(content).samples, read(frames).samples)


def test_mp3_of_a_constant_rate_is_what_libsndfile_reads():
    content = written("MP3", "MPEG_LAYER_III", bitrate_mode="CONSTANT", compression_level=0.5)
    bare = b"".join(mpeg_frames(content)[1:])
    np.testing.assert_allclose(read(bare).samples, decoded(bare), atol=1e-6)


def vorbis(samples=SAMPLES, rate=RATE):
    return written("OGG", "VORBIS", samples, rate)


def opus(samples=SAMPLES, rate=RATE):
    return written("OGG", "OPUS", samples, rate)


def piped_wav(samples=SAMPLES, rate=RATE):
    return patched(written("WAV", samples=samples, rate=rate), 40, "<I", 0x7FFFF000)


@pytest.mark.parametrize(
    "make",
    [
        vorbis,
        opus,
        piped_wav,
        *(lambda *sound, form=form: written(form, "PCM_16", *sound) for form in ("WAV", "AIFF", "AU", "FLAC")),
        lambda *sound: patched(written("AU", "PCM_16", *sound), 8, ">I", 0xFFFFFFFF),
        lambda *sound: with_flac_samples(written("FLAC", "PCM_16", *sound), 0),
        lambda samples=SAMPLES, rate=RATE: written("MP3", "MPEG_LAYER_III", samples, rate),
    ],
)
def test_sounds_that_follow_each_other_are_read_whole(make):
    """Chained Ogg (RFC 3533, section 4), and files of other formats one after the other."""
    first, second = make(), make(SAMPLES[::-1][:8000])
    expected = np.concatenate([read(first).samples, read(second).samples])
    np.testing.assert_array_equal(read(first + second).samples, expected)
    faster = make(SAMPLES, 3 * RATE)  # a third of a second of another rate
    found = read(first + faster + second)
    assert found.rate == RATE
    assert len(found.samples) - len(expected) == -(-len(read(faster).samples) // 3)


def ogg_pages(content):
    pages, position = [], 0
    while position < len(content):
        segments = content[position + 26]
        size = 27 + segments + sum(content[position + 27 : position + 27 + segments])
        pages.append(bytearray(content[position : position + size]))
        position += size
    return pages


def with_sum(page):
    """The page with its checksum (RFC 3533, section 6)."""
    page[22:26] = bytes(4)
    remainder = 0
    for byte in page:
        remainder ^= byte << 24
        for _ in range(8):
            remainder = (remainder << 1 ^ (0x04C11DB7 if remainder >> 31 else 0)) & 0xFFFFFFFF
    page[22:26] = struct.pack("<I", remainder)
    return page


@pytest.mark.parametrize("position", [-1, 0, 1000, 10**9, 2**62])
@pytest.mark.parametrize("make", [vorbis, opus])
def test_the_last_page_of_ogg_may_say_another_length(make, position):
    content = make(np.tile(SAMPLES, 10))  # several pages
    expected = read(content).samples
    pages = ogg_pages(content)
    pages[-1] = with_sum(pages[-1][:6] + struct.pack("<q", position) + pages[-1][14:])
    found = read(b"".join(pages)).samples
    assert len(expected) <= len(found) < len(expected) + 2048
    np.testing.assert_array_equal(found[: len(expected)], expected)


@pytest.mark.parametrize("form", ["WAV", "AIFF", "AU", "W64", "CAF", "OGG"])
@pytest.mark.parametrize("share", [0.4, 0.99])
def test_a_sound_that_was_cut_off_is_noticed(form, share):
    content = written(form, "VORBIS" if form == "OGG" else "PCM_16")
    with pytest.raises(DataError, match="a: is truncated"):
        read(content[: int(share * len(content))])


def test_parts_without_end_are_refused(monkeypatch):
    monkeypatch.setattr("regard.data.speech.streams.MOST_PARTS", 1000)
    monkeypatch.setattr("regard.data.speech.mpeg_audio.MOST_FRAMES", 1000)
    with pytest.raises(DataError, match="not a sound"):
        read(b"RIFF\0\0\0\0WAVE" + bytes(8) * 2000 + written("WAV")[36:])
    with pytest.raises(DataError, match="more than 1,000 pages"):
        read((b"OggS\0" + bytes(22)) * 2000)
    with pytest.raises(DataError, match="more than 1,000 frames"):
        read(b"".join(mpeg_frames(mp3())[1:] * 50))
    with pytest.raises(DataError, match="more than 1,000 sounds"):
        read(written("AU", samples=SAMPLES[:8]) * 1002)


def test_wav_of_gsm_has_no_number_of_frames():
    """libsndfile cannot search in it."""
    content = written("WAV", "GSM610", SAMPLES[:3200])
    assert len(read(content).samples) == 3200
    same = patched(content, content.index(b"data") + 4, "<I", 0x7FFFEFBE)  # of sox 14.4.2
    np.testing.assert_array_equal(read(same).samples, read(content).samples)


def test_an_array_of_features_is_the_whole_file(tmp_path):
    """Two arrays that numpy.save wrote into one file; numpy.load reads the first."""
    with (tmp_path / "a.npy").open("wb") as file:
        np.save(file, np.zeros((3, 5)))
        np.save(file, np.ones((2, 5)))
    with pytest.raises(DataError, match=r"a\.npy: holds 208 bytes behind its array"):
        read_features(tmp_path / "a.npy")
