"""MPEG audio (MP3): frames, each of which says its length (ISO/IEC 11172-3, section 2.4.1.3; 13818-3, 2.4.2.3).

A file does not say how many frames it has, but for an index that some programs write as its first one.
"""

import struct
from typing import NamedTuple

from regard.errors import DataError

_BITRATES = {  # kbit/s by their index, of (whether it is version 1, layer)
    (True, 1): (0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}

MOST_FRAMES = 1 << 20
"""Frames of a file that is read; an hour has 138,000 of layer III, 450,000 of layer I."""

_SEARCHED_BYTES = 1 << 16
"""Bytes in which the next frame is searched for behind something that is none."""


class _MpegFrame(NamedTuple):
    position: int
    size: int
    kind: tuple[int, int, int, bool]  # bits of the version, layer, rate, whether it has one channel

    @property
    def end(self) -> int:
        return self.position + self.size

    def index_position(self) -> int:
        """Returns the position of an index in a frame that holds one."""
        version, _, _, mono = self.kind
        side = (17 if mono else 32) if version == 3 else (9 if mono else 17)
        return self.position + 4 + side

    def indexed(self, content: bytes) -> int | None:
        """Returns the frames that an index of Xing, LAME or Fraunhofer states, or 0; None if this is no index."""
        position = self.index_position()
        if content.startswith((b"Xing", b"Info"), position):
            has_count = int.from_bytes(content[position + 4 : position + 8], "big") & 1
            return int.from_bytes(content[position + 8 : position + 12], "big") if has_count else 0
        position = self.position + 36
        is_index = content.startswith(b"VBRI", position)
        return int.from_bytes(content[position + 14 : position + 18], "big") if is_index else None


def mpeg_streams(content: bytes, start: int, where: str) -> tuple[list[bytes], int]:
    """Returns the streams of frames of one kind, each with an index of its frames, without which libsndfile estimates
    their number from the first ones and reads no further, and the position behind them. Raises DataError if frames are
    missing."""
    frame = _mpeg_frame(content, start)
    runs: list[list[_MpegFrame]] = []
    position, parts = start, 0
    while frame is not None:
        if frame.end > len(content):
            raise DataError(f"{where}: is truncated: its last frame is not whole; copy it again")
        if not runs or runs[-1][0].kind != frame.kind or frame.indexed(content) is not None:
            runs.append([])
        runs[-1].append(frame)
        position, parts = frame.end, parts + 1
        if parts > MOST_FRAMES:
            raise DataError(f"{where}: has more than {MOST_FRAMES:,} frames; cut it into parts")
        following = _mpeg_frame(content, position)
        if following is None or following.kind != frame.kind:
            following = _next_mpeg_frame(content, position)
        frame = following
    streams = (_mpeg_stream(content, frames, where) for frames in runs)
    return [stream for stream in streams if stream], position


def _mpeg_stream(content: bytes, frames: list[_MpegFrame], where: str) -> bytes:
    declared = frames[0].indexed(content)
    coded = frames if declared is None else frames[1:]
    if not coded:
        return b""
    if declared is not None and len(coded) + 1 < declared < 0xFFFFFFFF:
        raise DataError(f"{where}: is truncated: {len(coded):,} of {declared:,} frames are there; copy it again")
    is_right = content.startswith((b"Xing", b"Info"), frames[0].index_position()) and declared == len(coded)
    if is_right or coded[0].kind[1] != 3:
        return b"".join(content[one.position : one.end] for one in frames)
    return _mpeg_index(content, coded) + b"".join(content[one.position : one.end] for one in coded)


def _mpeg_index(content: bytes, frames: list[_MpegFrame]) -> bytes:
    """Returns two frames for the front of others: an index, as Xing and LAME write it, and a silent one.

    mpg123 leaves out its own delay, 529 samples, where there is an index, and as many more as the index says: together
    they are the silent frame, so that all samples are kept, as without an index.
    """
    first = frames[0]
    head = bytearray(content[first.position : first.position + 4])
    head[1] |= 1  # no checksum
    head[2] = head[2] & 0x0C | (0x90 if first.kind[0] == 3 else 0x80)  # 128 or 64 kbit/s, which has room for the index
    index = _mpeg_frame(bytes(head), 0)
    assert index is not None
    samples = 1152 if first.kind[0] == 3 else 576
    filled = head.ljust(index.index_position(), b"\0") + b"Xing" + struct.pack(">II", 1, len(frames) + 1)
    filled += b"LAME".ljust(21, b"\0") + (samples - _DECODER_DELAY << 12 | _DECODER_DELAY).to_bytes(3, "big")
    return bytes(filled.ljust(index.size, b"\0") + head.ljust(index.size, b"\0"))


_DECODER_DELAY = 529


def mpeg_start(content: bytes, position: int) -> int | None:
    """Returns the position of the first frame of a file, perhaps behind tags; None if it is no MPEG audio."""
    start = behind_tags(content, position)
    frame = _mpeg_frame(content, start)
    if start > position:  # padding may follow tags
        frame = _next_mpeg_frame(content, start)
    elif frame is None or not _is_followed(content, frame):
        return None
    return None if frame is None else frame.position


def _next_mpeg_frame(content: bytes, start: int) -> _MpegFrame | None:
    """Returns the next frame that is followed by another one of its kind, or by the end."""
    position = behind_tags(content, start)
    end = min(len(content), position + _SEARCHED_BYTES)
    while (position := content.find(b"\xff", position, end)) >= 0:
        frame = _mpeg_frame(content, position)
        if frame is not None and _is_followed(content, frame):
            return frame
        position += 1
    return None


def _is_followed(content: bytes, frame: _MpegFrame) -> bool:
    following = _mpeg_frame(content, frame.end)
    return frame.end == len(content) if following is None else following.kind == frame.kind


def _mpeg_frame(content: bytes, position: int) -> _MpegFrame | None:
    """Returns the frame at a position, which may be cut off; None if there is none, or its length is not known."""
    head = content[position : position + 4]
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    version, layer = head[1] >> 3 & 3, 4 - (head[1] >> 1 & 3)
    bitrate, rate, padding = head[2] >> 4, head[2] >> 2 & 3, head[2] >> 1 & 1
    if version == 1 or layer == 4 or bitrate in (0, 15) or rate == 3:
        return None
    bits, samples = 1000 * _BITRATES[version == 3, layer][bitrate], _RATES[version][rate]
    if layer == 1:
        size = 4 * (12 * bits // samples + padding)
    else:
        size = (72 if layer == 3 and version != 3 else 144) * bits // samples + padding
    return _MpegFrame(position, size, (version, layer, samples, head[3] >> 6 == 3))


def behind_tags(content: bytes, position: int) -> int:
    """Returns the position behind tags of ID3v2, whose sizes have 7 bits a byte."""
    while content.startswith(b"ID3", position) and position + 10 <= len(content):
        size = 0
        for byte in content[position + 6 : position + 10]:
            size = size << 7 | byte & 0x7F
        position += 10 + size + 10 * (content[position + 5] >> 4 & 1)
    return position
