"""FLAC (RFC 9639): how many samples a stream has, which its header need not say, and says wrongly if it was cut off."""

from functools import cache
from typing import NamedTuple

from regard.errors import DataError


def flac_stream(content: bytes, start: int, where: str) -> tuple[list[bytes | bytearray], int]:
    """Returns the one stream at a position, its header with the true number of samples, and the position behind it;
    raises DataError if samples are missing at its end."""
    another = content.find(b"fLaC\0\0\0\x22", start + 4)
    end = len(content) if another < 0 else another
    sound_end = end - 128 if content.startswith(b"TAG", max(start, end - 128)) else end
    body, is_last = start + 4, False
    while not is_last and body + 4 <= len(content):
        is_last = bool(content[body] & 0x80)
        body += 4 + int.from_bytes(content[body + 1 : body + 4], "big")
    last = _last_flac_frame(content, start + 8, body, sound_end)
    if last is None:
        return [content[start:end]], end
    field = start + 21  # of 4 bits that belong to the bits a sample, and 36 with the number of samples
    bits = int.from_bytes(content[field : field + 5], "big")
    declared = bits & (1 << 36) - 1
    if declared > last.samples:
        raise DataError(f"{where}: is truncated: {last.samples:,} of {declared:,} samples are there; copy it again")
    if not declared and not last.is_whole:
        raise DataError(f"{where}: is truncated: its last frame is not whole; copy it again")
    stream = content[start:end]
    if declared != last.samples and last.is_whole:
        changed = bytearray(stream)
        changed[21:26] = (bits - declared + last.samples).to_bytes(5, "big")
        return [changed], end
    return [stream], end


class _FlacFrame(NamedTuple):
    samples: int  # of the stream up to its end
    is_whole: bool


_MOST_CHECKED_HEADERS = 8
"""Headers that are looked at for the last frame of a FLAC file: some of them may be samples that look like one."""

_LARGEST_FRAME = 1 << 21
"""Bytes that a frame of FLAC may have."""


def _last_flac_frame(content: bytes, information: int, body: int, end: int) -> _FlacFrame | None:
    """Returns the last frame between ``body`` and ``end``; None if there is none. STREAMINFO is at ``information``."""
    block = int.from_bytes(content[information + 2 : information + 4], "big")
    channels = (content[information + 12] >> 1 & 7) + 1
    position, cut_off, checked = end, None, 0
    while checked < _MOST_CHECKED_HEADERS:
        position = content.rfind(b"\xff", max(body, end - _LARGEST_FRAME), position)
        if position < 0:
            break
        samples = _flac_header(content, position, block, channels)
        if samples is not None:
            checked += 1
            if not remainder(content[position:end], 16, 0x8005):
                return _FlacFrame(samples, True)
            cut_off = cut_off or _FlacFrame(samples, False)
    return cut_off


def _flac_header(content: bytes, position: int, block: int, channels: int) -> int | None:
    """Returns the samples of the stream up to the end of the frame whose header is here; None if there is no header."""
    head = content[position : position + 16]
    if len(head) < 6 or head[1] & 0xFE != 0xF8 or head[3] & 1:
        return None
    block_code, rate_code, assignment = head[2] >> 4, head[2] & 15, head[3] >> 4
    if not block_code or rate_code == 15 or (assignment + 1 if assignment < 8 else 2) != channels:
        return None
    # The number is coded as UTF-8 codes a character, with up to seven bytes.
    leading = 8 - (head[4] ^ 0xFF).bit_length()
    if leading in (1, 8) or 5 + leading > len(head):
        return None
    number = head[4] & (0x7F >> leading)
    for byte in head[5 : 5 + max(0, leading - 1)]:
        number = number << 6 | byte & 0x3F
    after = 5 + max(0, leading - 1)
    extra = {6: 1, 7: 2}.get(block_code, 0)
    own = int.from_bytes(head[after : after + extra], "big") + 1
    if block_code == 1:
        own = 192
    elif block_code < 6:
        own = 576 << block_code - 2
    elif block_code >= 8:
        own = 256 << block_code - 8
    after += extra + {12: 1, 13: 2, 14: 2}.get(rate_code, 0)
    if after >= len(head) or remainder(head[: after + 1], 8, 0x07):
        return None
    return own + (number if head[1] & 1 else number * block)


@cache
def _remainders(bits: int, polynomial: int) -> list[int]:
    """Returns the remainders of single bytes in a cyclic redundancy check."""
    table = []
    for value in range(256):
        value <<= bits - 8
        for _ in range(8):
            value = (value << 1 ^ (polynomial if value >> bits - 1 else 0)) & (1 << bits) - 1
        table.append(value)
    return table


def remainder(content: bytes | bytearray, bits: int, polynomial: int) -> int:
    """Returns the remainder of a cyclic redundancy check; 0 if the content ends with its own."""
    table, rest, mask, shift = _remainders(bits, polynomial), 0, (1 << bits) - 1, bits - 8
    for byte in content:
        rest = rest << 8 & mask ^ table[rest >> shift ^ byte]
    return rest
