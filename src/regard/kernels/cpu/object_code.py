"""Making stored object code ready to run, without a compiler where that is possible.

What LLVM writes for a process's own use needs a few steps: sections are laid one behind the other, the addresses that
they hold are filled in, and the memory is made executable. Here these are done for Linux on x86-64, where object code
is ELF (System V ABI, AMD64 supplement, 4.4), and calls no functions but C's that fill and copy memory. For all else
LLVM does it: it has to be loaded first, which takes 40 MiB of memory and a tenth of a second.
"""

import ctypes
import errno
import logging
import mmap
import os
import struct
import sys
from typing import Any, NamedTuple

from regard.kernels.cpu.cache import MachineCode

LOG = logging.getLogger("regard")

_CALLED = ("memset", "memcpy", "memmove")
"""C functions that LLVM calls in place of loops."""

_HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_WORD = struct.Struct("<q")

_SYSTEM = "linux"
_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _RELOCATIONS, _ZEROS = 2, 4, 8
_STANDS_IN_MEMORY = 2
_UNDEFINED, _NO_SECTION = 0, 0xFFF1
_ABSOLUTE, _RELATIVE = 1, 24
"""Kinds of addresses: S + A, and S + A − P, of 64 bits each. LLVM's code for processes has no others."""


class _UnknownFormatError(Exception):
    """Object code that is not placed here; the message says what is not known."""


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def link(found: MachineCode) -> tuple[int, Any]:
    """The address of a function, and the owner of its code, which lives as long as that.

    Raises:
        RuntimeError: the code has no such function, or is none.
    """
    try:
        return _placed(found.code, found.symbol.encode())
    except (_UnknownFormatError, struct.error, IndexError, ValueError) as reason:
        LOG.debug("%s is linked by LLVM: %s", found.symbol, reason)
        return _linked_by_llvm(found)


def _linked_by_llvm(found: MachineCode) -> tuple[int, Any]:
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.Target.from_triple(llvm.get_process_triple())
    # An engine for each kernel, since parts of different kernels may have the same name.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), triple.create_target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(found.code))
    engine.finalize_object()
    address = engine.get_function_address(found.symbol)
    if not address:
        raise RuntimeError(f"it has no function {found.symbol!r}")
    return address, engine


def _placed(code: bytes, wanted: bytes) -> tuple[int, mmap.mmap]:
    """The address of a function, and the memory that it stands in."""
    if sys.platform != _SYSTEM:
        raise _UnknownFormatError(f"object code of {sys.platform}")
    sections = _sections(code)
    # Tables for debuggers and exceptions need no place: no kernel raises.
    names = sections[_HEADER.unpack_from(code)[-1]]
    offsets, size = {}, 0
    for number, section in enumerate(sections):
        if section.flags & _STANDS_IN_MEMORY and _text(code, names, section.name) != b".eh_frame":
            size = -(-size // max(section.alignment, 1)) * max(section.alignment, 1)
            offsets[number] = size
            size += section.size
    memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for number, offset in offsets.items():
        section = sections[number]
        if section.kind != _ZEROS:
            memory[offset : offset + section.size] = code[section.offset : section.offset + section.size]
    symbols = _symbols(code, sections, {number: start + offset for number, offset in offsets.items()})
    for section in sections:
        if section.kind == _RELOCATIONS and section.info in offsets:
            _fill_in(code, section, symbols, memory, offsets[section.info], start)
    _make_executable(start, len(memory))
    for name, address in symbols:
        if name == wanted and address is not None:
            return address, memory
    raise RuntimeError(f"it has no function {wanted.decode()!r}")


def _sections(code: bytes) -> list[_Section]:
    magic, bits, order, _, _, _, kind, machine, _, _, _, table, _, _, _, _, entry_size, count, _ = _HEADER.unpack_from(
        code + bytes(_HEADER.size)
    )
    if (magic, bits, order, kind, machine) != (b"\x7fELF", 2, 1, _RELOCATABLE, _X86_64) or not count:
        raise _UnknownFormatError("object code of another processor or system")
    return [_Section(*_SECTION.unpack_from(code, table + entry_size * number)) for number in range(count)]


def _text(code: bytes, table: _Section, at: int) -> bytes:
    start = table.offset + at
    return code[start : code.index(b"\0", start)]


def _symbols(code: bytes, sections: list[_Section], places: dict[int, int]) -> list[tuple[bytes, int | None]]:
    """Name and address of each symbol; None where its section has no place."""
    (table,) = (section for section in sections if section.kind == _SYMBOLS)
    found: list[tuple[bytes, int | None]] = []
    for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
        named, _, _, section, value, _ = _SYMBOL.unpack_from(code, at)
        name = _text(code, sections[table.link], named)
        if section == _UNDEFINED:
            found.append((name, _address_of(name.decode()) if name else 0))
        elif section == _NO_SECTION:
            found.append((name, value))
        else:
            found.append((name, places[section] + value if section in places else None))
    return found


def _address_of(name: str) -> int:
    """Of a C function."""
    if name not in _CALLED:
        raise _UnknownFormatError(f"object code that calls {name!r}")
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0


def _fill_in(
    code: bytes, section: _Section, symbols: list[tuple[bytes, int | None]], memory: mmap.mmap, offset: int, start: int
) -> None:
    """Write the addresses that a section holds."""
    for at in range(section.offset, section.offset + section.size, _RELOCATION.size):
        within, info, addend = _RELOCATION.unpack_from(code, at)
        kind, (name, address) = info & 0xFFFFFFFF, symbols[info >> 32]
        if kind not in (_ABSOLUTE, _RELATIVE) or address is None:
            raise _UnknownFormatError(f"an address of kind {kind} of {name.decode()!r}")
        number = address + addend - (start + offset + within if kind == _RELATIVE else 0)
        _WORD.pack_into(memory, offset + within, number)


def _make_executable(start: int, size: int) -> None:
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if protect(start, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise _UnknownFormatError(
            f"memory cannot be made executable: {os.strerror(ctypes.get_errno() or errno.EACCES)}"
        )
