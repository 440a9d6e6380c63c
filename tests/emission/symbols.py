"""The undefined symbols of an object file: Mach-O, COFF or ELF of 64 bits, little-endian, read by their documented layouts.

Mach-O: <mach-o/loader.h>, <mach-o/nlist.h>. COFF: "PE Format", Microsoft. ELF: System V ABI, chapter 4.
"""

import struct

__all__ = ["undefined"]


def undefined(code: bytes) -> set[str]:
    """The names that a linker would have to find elsewhere; Mach-O's leading underscore is taken off."""
    if code[:4] == b"\xcf\xfa\xed\xfe":
        return _mach_o(code)
    if code[:4] == b"\x7fELF":
        return _elf(code)
    if struct.unpack_from("<H", code)[0] in (0x8664, 0xAA64):
        return _coff(code)
    raise ValueError(f"an object file that begins with {code[:4].hex()}")


def _text(code: bytes, at: int) -> str:
    return code[at : code.index(b"\0", at)].decode()


def _mach_o(code: bytes) -> set[str]:
    external, kind, symtab = 0x01, 0x0E, 0x2
    (commands,) = struct.unpack_from("<I", code, 16)
    at, found = 32, set()
    for _ in range(commands):
        command, size = struct.unpack_from("<II", code, at)
        if command == symtab:
            symbols, count, strings, _ = struct.unpack_from("<4I", code, at + 8)
            for i in range(count):
                name, flags, _, _, value = struct.unpack_from("<IBBHQ", code, symbols + 16 * i)
                if flags & external and not flags & kind and value == 0:  # else its size: common
                    found.add(_text(code, strings + name).removeprefix("_"))
        at += size
    return found


def _coff(code: bytes) -> set[str]:
    symbols, count = struct.unpack_from("<II", code, 8)
    strings, i, found = symbols + 18 * count, 0, set()
    while i < count:
        at = symbols + 18 * i
        name, value, section, _, storage, more = struct.unpack_from("<8sIhHBB", code, at)
        zeros, offset = struct.unpack("<II", name)
        text = _text(code, strings + offset) if zeros == 0 else name.rstrip(b"\0").decode()
        if section == 0 and storage == 2 and value == 0:  # external, in no section, not common
            found.add(text)
        i += 1 + more
    return found


def _elf(code: bytes) -> set[str]:
    symbol_table = 2
    (sections,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", code, sections + size * i) for i in range(count)]
    found = set()
    for _, kind, _, _, at, length, link, _, _, each in headers:
        if kind == symbol_table:
            for place in range(at + each, at + length, each):
                name, _, _, section, _, _ = struct.unpack_from("<IBBHQQ", code, place)
                if section == 0:
                    found.add(_text(code, headers[link][4] + name))
    return found
