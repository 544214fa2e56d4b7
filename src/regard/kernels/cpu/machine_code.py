"""The machine code of a kernel: the content of a cache file, which LLVM makes callable."""

import struct
from typing import Any, NamedTuple

_SYMBOL_LENGTH = struct.Struct("<I")

_ENGINES: list[Any] = []
"""LLVM's owners of linked code. They are never freed, since another thread may be running that code."""


class MachineCode(NamedTuple):
    """Object code of one kernel."""

    symbol: str
    code: bytes

    @property
    def content(self) -> bytes:
        """The content of a file for this code."""
        symbol = self.symbol.encode()
        return _SYMBOL_LENGTH.pack(len(symbol)) + symbol + self.code

    @classmethod
    def from_content(cls, content: bytes) -> "MachineCode":
        """Returns the code of such a file, the inverse of `content`."""
        (length,) = _SYMBOL_LENGTH.unpack_from(content)
        end = _SYMBOL_LENGTH.size + length
        return cls(content[_SYMBOL_LENGTH.size : end].decode(), content[end:])

    def link(self) -> int:
        """Loads the code into this process and returns the kernel's address."""
        from llvmlite import binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
        # Each kernel has an engine, since parts of different kernels may have the same name.
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(self.code))
        engine.finalize_object()
        address = engine.get_function_address(self.symbol)
        if not address:
            raise RuntimeError(f"the code has no function {self.symbol!r}")
        _ENGINES.append(engine)
        return address
