"""The streams of a file of sound, each with a header that says how much of it is there.

A program that writes into a pipe cannot go back to the header, where the length stands: it leaves 0 there, or a number
that no sound has, and a reader that believes it refuses the file or stops too early. MP3 has no length at all, and
several streams may follow each other in one file (chained Ogg, RFC 3533, section 4). Here, a length is that of what is
there; the declared one tells whether a file was cut off.
"""

import logging
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from regard.data.speech.flac_audio import flac_stream, remainder
from regard.data.speech.mpeg_audio import behind_tags, mpeg_start, mpeg_streams
from regard.errors import DataError

log = logging.getLogger("regard")

UNKNOWN_LENGTH = 0x7E000000
"""Declared bytes that stand for an unknown length, and all above: 0x7F000000 (sox 14.4.2, AIFF), 0x7FFFF000 (sox, and
espeak-ng 1.51, WAV), 0xFFFFFFFF (ffmpeg 5.1; AU by its specification), −1 (CAF). No sound that is read has so many."""

MOST_PARTS = 1 << 18
"""Chunks or pages of a file that is read; an hour of Opus with a packet a page has 180,000."""

MOST_STREAMS = 1000
"""Streams of a file that is read."""

_TAGS = (b"TAG", b"ID3", b"APETAGEX", b"LYRICSBEGIN")
"""What programs append to a file of any format: names of artists and the like."""

Content = bytes | bytearray


Streams = tuple[Sequence[Content], int]
"""Streams that follow each other in a file, each as libsndfile reads it whole, and the position behind them."""


def sound_streams(content: bytes, where: str) -> list[Content]:
    """Returns the streams of a file of sound in their order, with headers that state their true lengths; files of other
    formats, and those whose header is damaged, as they are. Raises DataError if the file ends before the length that
    its header declares, or within a frame or a page."""
    streams: list[Content] = []
    position, files = 0, 0
    while (reader := _stream_reader(content, position)) is not None:
        read, start = reader
        contents, position = read(content, start, where)
        streams += contents
        files += 1
        if max(files, len(streams)) > MOST_STREAMS:
            raise _too_many(where, f"{MOST_STREAMS:,} sounds")
    rest = content[position : position + (1 << 16)].lstrip(b"\0")
    if streams and rest and not rest.startswith(_TAGS):
        log.warning("%s: left out the last %d bytes, which are neither sound nor tags", where, len(content) - position)
    return streams or [content]


def _stream_reader(content: bytes, position: int) -> tuple[Callable[[bytes, int, str], Streams], int] | None:
    """Returns the reader of the streams at a position or behind tags there, and their start, or None."""
    start = behind_tags(content, position)
    if content.startswith(b"OggS", start):
        return _ogg, start
    if content.startswith((b".snd", b"dns."), start):
        return _au, start
    if content.startswith(b"fLaC", start):
        return flac_stream, start
    if any(content.startswith(kind.magic, start) for kind in _CHUNK_FORMATS):
        return _chunked, start
    begins = mpeg_start(content, position)
    return None if begins is None else (mpeg_streams, begins)


def _too_many(where: str, what: str) -> DataError:
    return DataError(f"{where}: has more than {what} that follow each other; convert it")


def _truncated(where: str, there: int, declared: int) -> DataError:
    return DataError(f"{where}: is truncated: {there:,} of {declared:,} bytes are there; copy it again")


# Formats of chunks: a name, a size and a content, of which one are the samples


class _Kind(NamedTuple):
    """How a format writes its chunks."""

    magic: bytes
    first: int  # position of the first chunk
    name_bytes: int
    size: struct.Struct
    inclusive: bool  # whether a size counts the name and itself
    alignment: int
    samples: bytes  # name of the chunk of the samples
    prefix: int  # bytes in front of them in it
    whole: int  # position of the size of the file; 0: there is none

    @property
    def head(self) -> int:
        return self.name_bytes + self.size.size

    def read(self, content: bytes, position: int) -> tuple[bytes, int] | None:
        """Returns the name of a chunk and the declared bytes of its content; None if the file ends before them."""
        if position + self.head > len(content):
            return None
        (size,) = self.size.unpack_from(content, position + self.name_bytes)
        size = max(0, size - self.head) if self.inclusive else size
        return content[position : position + self.name_bytes], size

    def following(self, position: int, size: int) -> int:
        """Returns where the chunk after this one begins."""
        return position + self.head + size + -size % self.alignment


_LITTLE, _BIG = struct.Struct("<I"), struct.Struct(">I")
_MPEG_CODINGS = (0x50, 0x55)  # of WAV: layers I and II, layer III
_W64 = bytes.fromhex("f3acd3118cd100c04f8edb8a")  # ends the names of its chunks
_CHUNK_FORMATS = (
    _Kind(b"RIFF", 12, 4, _LITTLE, False, 2, b"data", 0, 4),
    _Kind(b"RF64", 12, 4, _LITTLE, False, 2, b"data", 0, 4),
    _Kind(b"BW64", 12, 4, _LITTLE, False, 2, b"data", 0, 4),
    _Kind(b"RIFX", 12, 4, _BIG, False, 2, b"data", 0, 4),
    _Kind(b"FORM", 12, 4, _BIG, False, 2, b"SSND", 8, 4),
    _Kind(b"riff\x2e\x91\xcf\x11", 40, 16, struct.Struct("<Q"), True, 8, b"data" + _W64, 0, 16),
    _Kind(b"caff", 8, 4, struct.Struct(">Q"), False, 1, b"data", 4, 0),
)


def _chunked(content: bytes, start: int, where: str) -> Streams:
    kind = next(one for one in _CHUNK_FORMATS if content.startswith(one.magic, start))
    position, sizes, coding, parts = start + kind.first, None, 0, 0
    while (chunk := kind.read(content, position)) is not None and chunk[0] != kind.samples and parts < MOST_PARTS:
        parts += 1
        if chunk[0] == b"ds64" and position + kind.head + 16 <= len(content):  # of RF64: sizes of 64 bits
            sizes = position
        if chunk[0] == b"fmt " and position + kind.head + 2 <= len(content):
            (coding,) = struct.unpack_from("<H", content, position + kind.head)
        position = kind.following(position, chunk[1])
    if chunk is None or chunk[0] != kind.samples:  # libsndfile says what is wrong with it
        return [content[start:]], len(content)
    declared, body = chunk[1], position + kind.head
    if sizes is not None and declared == 0xFFFFFFFF:
        declared = struct.unpack_from("<Q", content, sizes + kind.head + 8)[0]
    there = len(content) - body
    if start and there <= kind.prefix:  # a header that was written again, as what followed was known
        return [], len(content)
    known = kind.prefix < declared < UNKNOWN_LENGTH or (
        declared <= kind.prefix and _chain_end(kind, content, body + declared) == len(content)
    )
    if known and declared > there:
        raise _truncated(where, there, declared)
    if not known:
        end = _next_header(kind, content, start, body)
        size = end - body
    else:
        # Some programs leave out the padding of an odd size.
        starts = {min(kind.following(position, declared), len(content)), body + declared}
        size, end = declared, max(_chain_end(kind, content, one) for one in starts)
        whole = kind.size.unpack_from(content, start + kind.whole)[0] + start + (0 if kind.inclusive else 8)
        if kind.whole and end < whole <= len(content):  # the file's size says that the samples go on
            size, end = whole - body, whole
    if size <= kind.prefix:
        return [], end
    if coding in _MPEG_CODINGS:  # the samples are a file of MPEG audio
        coded = content[body : body + size]
        begins = mpeg_start(coded, 0)
        if begins is not None:
            return mpeg_streams(coded, begins, where)[0], end
    if known and (start, end) == (0, len(content)) and size == declared and sizes is None:
        return [content], end
    stream = bytearray(content[start:end])
    kind.size.pack_into(stream, position - start + kind.name_bytes, size + (kind.head if kind.inclusive else 0))
    if kind.whole:
        kind.size.pack_into(stream, kind.whole, len(stream) - (0 if kind.inclusive else 8))
    if sizes is not None:  # there is room for them in 32 bits
        stream[:4] = b"RIFF"
        stream[sizes - start : sizes - start + 4] = b"JUNK"
    return [stream], end


def _next_header(kind: _Kind, content: bytes, start: int, body: int) -> int:
    """Returns where another header of the kind of the one at ``start`` begins, which a program that cannot go back may
    write (sox 14.4.2: W64 and CAF); the end of the content if there is none."""
    while (body := content.find(kind.magic, body)) >= 0:
        if content[body + 8 : body + 12] == content[start + 8 : start + 12]:
            return body
        body += 1
    return len(content)


def _chain_end(kind: _Kind, content: bytes, position: int) -> int:
    """Returns the end of the whole chunks from a position on whose names are letters."""
    for _ in range(MOST_PARTS):
        chunk = kind.read(content, position)
        if chunk is None:
            break
        following = kind.following(position, chunk[1])
        is_name = all(32 <= byte < 127 for byte in chunk[0][:4]) and not content.startswith(kind.magic, position)
        if not is_name or following - kind.alignment >= len(content):
            break
        position = min(following, len(content))
    return position


def _au(content: bytes, start: int, where: str) -> Streams:
    size_of = _BIG if content.startswith(b".snd", start) else _LITTLE
    if start + 24 > len(content):
        return [content[start:]], len(content)
    (offset,), (declared,) = (size_of.unpack_from(content, start + field) for field in (4, 8))
    body = min(start + offset, len(content))
    there = len(content) - body
    known = 0 < declared < UNKNOWN_LENGTH
    if known and declared > there:
        raise _truncated(where, there, declared)
    # Nothing but tags and other sounds may follow the samples, whatever the header says.
    rest = content[body + declared : body + declared + 16].lstrip(b"\0")
    is_end = known and (not rest or rest.startswith(_TAGS) or _stream_reader(content, body + declared) is not None)
    end = body + declared if is_end else len(content)
    again = body
    while not is_end and (again := content.find(content[start : start + 8], again)) >= 0:
        # The same coding and number of channels; the rate may be another one.
        if all(content[again + at : again + at + 4] == content[start + at : start + at + 4] for at in (12, 20)):
            end = again
            break
        again += 1
    stream = bytearray(content[start:end])
    size_of.pack_into(stream, 8, end - body)
    return [stream], end


# Ogg (RFC 3533): pages of packets; a page says how many samples the stream has up to its end


class _Page(NamedTuple):
    position: int
    end: int
    is_first: bool  # of its stream
    samples: int
    serial: bytes


def _ogg(content: bytes, start: int, where: str) -> Streams:
    """Returns the links of a chain."""
    links: list[list[_Page]] = []
    position, pages = start, 0
    while content.startswith(b"OggS", position):
        body = position + 27 + content[position + 26] if position + 27 <= len(content) else len(content) + 1
        end = body + sum(content[position + 27 : body])
        if end > len(content):
            raise DataError(f"{where}: is truncated: its last page is not whole; copy it again")
        kind, samples, serial = struct.unpack_from("<Bq4s", content, position + 5)
        page = _Page(position, end, bool(kind & 2), samples, serial)
        # The first pages of streams that are played together follow each other.
        if not links or (page.is_first and not links[-1][-1].is_first):
            links.append([])
        links[-1].append(page)
        position, pages = end, pages + 1
        if pages > MOST_PARTS or len(links) > MOST_STREAMS:
            raise _too_many(where, f"{MOST_PARTS:,} pages or {MOST_STREAMS:,} sounds")
    return [_ogg_stream(content, pages) for pages in links], position


_LONGEST_PAGE = 255 * 8192
"""Samples of a page, at most: of 255 packets of Vorbis; of 255 packets of Opus, 255 · 5760."""


def _ogg_stream(content: bytes, pages: list[_Page]) -> Content:
    """Returns the stream of some pages; if the last one has an impossible number of samples, it gets a large one."""
    first, last = pages[0], pages[-1]
    stream = content[first.position : last.end]
    before = max((page.samples for page in pages[:-1]), default=0)
    is_empty = last.end - last.position <= 28 or last.is_first
    is_possible = before <= last.samples <= before + _LONGEST_PAGE and (last.samples or is_empty)
    if is_possible or is_empty or any(page.serial != first.serial for page in pages):
        return stream
    page = bytearray(content[last.position : last.end])
    struct.pack_into("<q", page, 6, before + _LONGEST_PAGE)
    page[22:26] = bytes(4)
    page[22:26] = remainder(page, 32, 0x04C11DB7).to_bytes(4, "little")
    return stream[: last.position - first.position] + page
