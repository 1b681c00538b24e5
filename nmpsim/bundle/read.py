"""Reading of bundles and of ELF programs without metadata, with complete checks.

The file is read once, so that the checked contents are the ones used. Whatever the file contains,
the outcome is a :class:`Bundle` or a :class:`~nmpsim.diagnostics.UserError`.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.check import Range, check_metadata
from nmpsim.bundle.elf import HEADER
from nmpsim.bundle.elffile import LINK_COMMAND, ElfFile, ElfSection
from nmpsim.bundle.file import DIGEST_BYTES, BundleFile, compute_digest
from nmpsim.bundle.image import MappedMemory, map_segments
from nmpsim.bundle.layout import DEBUG_SECTIONS, DIGEST, DWARF_PREFIX, LIR_TEXT, META
from nmpsim.bundle.metadata import Layer, Metadata, ProgramStep, Tensor
from nmpsim.bundle.schema import parse_metadata
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.escape import escape_line
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.lir.nodes import Module


# Metadata of an ELF program without metadata, such as a linked C program.

NUMERICS = "elf"
"""Name of the arithmetic in reports of ELF programs, whose instructions choose profiles."""
PROGRAM_OPCODE = "program"
"""Opcode of the layer that all the work of an ELF program counts for."""
DEVICE_SYMBOLS = {
    "cores_count": "__nmp_cores",
    "scratchpad_bytes": "__nmp_scratchpad_bytes",
}
"""Setting of the device for which a program is linked -> symbol with its value."""
_ENTRY_OFFSET = 24


def make_program_metadata(
    file: ElfFile, memory: MappedMemory, symbols: Mapping[str, tuple[int, int]]
) -> Metadata:
    """Return the metadata of an ELF program: no tensors, and one layer for all of its work.

    Raises
    ------
    UserError
        BUN002 if the entry point of the file is not in its code.
    """
    entry = int(HEADER.unpack_from(file.data)[4])
    if entry % 4 or not any(start <= entry < end for start, end in memory.ranges.text):
        code = " and ".join(f"{start:#x} to {end - 1:#x}" for start, end in memory.ranges.text)
        raise fail(
            "BUN002",
            "the entry point of the program is not an instruction",
            place=Place(file.path, offset=_ENTRY_OFFSET),
            found=f"the entry point {entry:#x}",
            expected=f"a multiple of 4 in the code at {code}" if code else "a segment with code",
            hint=f"Define _start in the code, or link the program with `{LINK_COMMAND}`.",
        )
    path = Path(file.path)
    name = path.stem or path.name
    output = Tensor(name, "i8", (0,), memory.ranges.read_write[0])
    layer = Layer(0, name, 0, 0, PROGRAM_OPCODE, "device", output, "")
    device = {key: symbols[name][0] for key, name in DEVICE_SYMBOLS.items() if name in symbols}
    steps = (ProgramStep("device", (0,), entry),)
    return Metadata(name, path.name, NUMERICS, device, (), (), (layer,), steps)


ALIGNMENT = 64
"""Bytes of a cache line of the host."""


@frozen(eq=False)
class Bundle:
    """Program that was read from a file and checked: a bundle, or an ELF program."""

    metadata: Metadata
    image: npt.NDArray[np.uint8]
    """Read-only memory: code, descriptors, constants; a view of ``file`` if possible."""
    image_base: int
    """Address of ``image[0]``."""
    rw_base: int
    """First address of the read-write memory."""
    rw_bytes: int
    initialized: tuple[Range, ...]
    """Ranges of the read-write memory that are initialized when the program is loaded."""
    contents: tuple[tuple[int, npt.NDArray[np.uint8]], ...]
    """Address and bytes of initial contents of the read-write memory; all other bytes are zero."""
    scratchpad_bytes: int
    """Bytes at the start of each scratchpad that segments reserve."""
    has_metadata: bool
    """Whether the file contains metadata; without them it is an ELF program with one layer."""
    symbols: Mapping[str, int]
    """Address of each named tensor, descriptor and piece of code."""
    symbol_sizes: Mapping[str, int]
    """Size of each symbol in bytes; 0 if unknown."""
    text: tuple[Range, ...]
    """Address ranges of code."""
    sections: Mapping[str, Range]
    """Address range of each loaded section."""
    path: str
    digest: str
    """SHA-256 of the file in hexadecimal, which identifies its contents."""
    debug: Mapping[str, memoryview]
    """Contents of the existing debug sections, those of the LIR and of DWARF."""
    file: memoryview
    """Contents of the whole file."""

    @property
    def has_module(self) -> bool:
        """Whether the bundle has the LIR module from which it was compiled."""
        return LIR_TEXT in self.debug

    def module(self) -> Module:
        """Return the LIR module from which the bundle was compiled.

        The module is read and checked at each call. Its instructions name the operations of the
        model's file from which they were made.

        Raises
        ------
        UserError
            BUN005 if the bundle has no module, BUN002 if it is damaged, BUN003 if it has the
            schema of another version.
        """
        if not self.has_metadata:
            raise fail(
                "BUN005",
                "the program was not compiled from a network",
                place=Place(self.path),
                found="an ELF program without metadata",
                expected="a compiled network with its LIR module",
                hint="Pass a bundle that `nmpsim compile` has written.",
            )
        from nmpsim.bundle.debug import read_module

        module = read_module(self.debug, self.image, self.image_base, Place(self.path))
        origins = self.metadata.origins
        return module if not origins else _with_origins(module, origins)

    def read_initial_state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the values of state tensors before the first run, as the device stores them."""
        found = {}
        for tensor in self.metadata.states:
            dtype, start = ELEM_DTYPES[tensor.elem], tensor.address - self.image_base
            nbytes = math.prod(tensor.shape) * dtype.itemsize
            values = self.image[start : start + nbytes].view(dtype)
            found[tensor.name] = values.reshape(tensor.shape)
        return found

    def require_device(self) -> Mapping[str, Any]:
        """Return the device settings of the bundle; raise UserError (BUN004) if any are missing.

        An ELF program without metadata runs on every device whose settings equal the returned ones.
        """
        settings = self.metadata.device
        if not self.has_metadata:
            return settings
        missing = [name for name in ("cores_count", "scratchpad_bytes") if name not in settings]
        if missing:
            raise fail(
                "BUN004",
                "the bundle does not contain all settings of the device that it was compiled for",
                place=Place(self.path),
                found=f"device settings without {' and '.join(missing)}",
                expected="the settings of a device, including cores_count and scratchpad_bytes",
                hint="Compile the network again.",
            )
        return settings

    def __repr__(self) -> str:
        metadata = self.metadata
        layers = "1 layer" if len(metadata.layers) == 1 else f"{len(metadata.layers)} layers"
        text = f"{metadata.program}: {layers}, {len(self.file):,} bytes, {self.path}"
        return escape_line(f"<Bundle {text}>")

    def __reduce__(self) -> tuple[Callable[..., Bundle], tuple[bytes, str]]:
        """Pickle the bundle as the bytes of its file, which are checked again when unpickled."""
        return parse_bundle, (bytes(self.file), self.path)


def _with_origins(module: Module, origins: Mapping[str, str]) -> Module:
    """Return the module with the operation of the model's file in each instruction's span."""
    instructions = (
        attrs.evolve(one, span=attrs.evolve(one.span, node=origins.get(one.name, "")))
        for one in module.instructions
    )
    return attrs.evolve(module, instructions=tuple(instructions))


class BundleHolder(Protocol):
    """Protocol of objects with a bundle, such as the result of :func:`nmpsim.compile`."""

    @property
    def bundle(self) -> Bundle:
        """Compiled program of the object."""


def get_bundle(program: Bundle | BundleHolder) -> Bundle:
    """Return ``program`` if it is a bundle, else its bundle; raise UserError if it has none."""
    bundle = program if isinstance(program, Bundle) else getattr(program, "bundle", None)
    if not isinstance(bundle, Bundle):
        raise fail(
            "ARG001",
            "this is not a program for the device",
            found=f"{type(program).__name__} {program!r}"[:80],
            expected="a result of nmpsim.load or nmpsim.compile",
            hint="Use nmpsim.load(PATH) to read a bundle.",
        )
    return bundle


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle from a file; raise UserError if the file is not a valid bundle.

    An ELF executable without metadata becomes a bundle with one layer and no tensors.

    Raises
    ------
    UserError
        FILE001 if the file cannot be read, BUN001 if it is not a bundle, BUN002 if it is damaged,
        BUN003 if it has the schema of another version.
    """
    return _bundle(_file_bytes(Path(path)), str(path))


def parse_bundle(data: bytes | memoryview | BundleFile, path: str = "<bytes>") -> Bundle:
    """Parse the bytes of a bundle file; raise UserError if they are not a valid bundle."""
    if isinstance(data, BundleFile):
        buffer = _aligned(data.nbytes)
        data.write_into(buffer.data)
    else:
        buffer = _aligned(len(data))
        buffer[:] = np.frombuffer(data, np.uint8)
    return _bundle(buffer, path)


def _aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    """Return memory aligned to a cache line of the host, which makes kernels faster."""
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]


def _bundle(buffer: npt.NDArray[np.uint8], path: str) -> Bundle:
    file = ElfFile(buffer.data, path)
    symbols = file.read_symbols()
    memory = map_segments(file, buffer)
    if file.is_bundle:
        meta = get_required_section(file, META)
        digest = _checked_digest(file)
        place = Place(path, offset=meta.offset)
        metadata = parse_metadata(bytes(file.read_section(meta)), place)
        check_metadata(metadata, memory.ranges, place)
    else:
        digest = hashlib.sha256(file.data).digest()
        metadata = make_program_metadata(file, memory, symbols)
    rw_base, rw_end = memory.ranges.read_write
    return Bundle(
        metadata=metadata,
        image=memory.image,
        image_base=memory.ranges.image[0],
        rw_base=rw_base,
        rw_bytes=rw_end - rw_base,
        initialized=memory.initialized,
        contents=memory.contents,
        scratchpad_bytes=memory.scratchpad_bytes,
        has_metadata=file.is_bundle,
        symbols={name: address for name, (address, _) in symbols.items()},
        symbol_sizes={name: nbytes for name, (_, nbytes) in symbols.items()},
        text=memory.ranges.text,
        sections={
            name: (section.address, section.address + section.nbytes)
            for name, section in file.sections.items()
            if section.is_loaded
        },
        path=path,
        digest=digest.hex(),
        debug={
            name: file.read_section(section)
            for name, section in file.sections.items()
            if name in DEBUG_SECTIONS or name.startswith(DWARF_PREFIX)
        },
        file=file.data.toreadonly(),
    )


def _file_bytes(path: Path) -> npt.NDArray[np.uint8]:
    """Return a copy of the contents of a file."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _cannot_read(path, "it is not a regular file")
            buffer = _aligned(status.st_size)
            return buffer[: file.readinto(buffer.data)]
    except OSError as error:
        raise _cannot_read(path, error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the path
        raise _cannot_read(path, str(error)) from error


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking, so that a pipe can be refused."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _cannot_read(path: Path, why: str) -> UserError:
    hint = "Check the path and the permissions of the file."
    return fail("FILE001", f"cannot read the bundle: {why}", place=Place(str(path)), hint=hint)


def get_required_section(file: ElfFile, name: str) -> ElfSection:
    """Return a section of a bundle; raise UserError (BUN001) if it is missing."""
    section = file.sections.get(name)
    if section is None:
        raise fail(
            "BUN001",
            "this RISC-V executable is not a bundle",
            place=Place(file.path),
            found=f"no section {name}",
            expected=f"a section {name}",
            hint="Use a file written by `nmpsim compile` or `nmpsim asm`; see docs/bundle.md.",
        )
    return section


def _checked_digest(file: ElfFile) -> bytes:
    section = get_required_section(file, DIGEST)
    place = Place(file.path, offset=section.offset)
    stored = bytes(file.read_section(section))
    if len(stored) != DIGEST_BYTES:
        raise fail(
            "BUN002",
            "the digest has the wrong size",
            place=place,
            found=f"{len(stored)} bytes",
            expected=f"{DIGEST_BYTES} bytes",
            hint="Copy the bundle again, or compile the network again.",
        )
    actual = compute_digest(file.data, section.offset)
    if actual != stored:
        raise fail(
            "BUN002",
            "the bundle is damaged: its contents do not match its digest",
            place=place,
            found=actual.hex(),
            expected=stored.hex(),
            hint="Copy the bundle again, or compile the network again.",
        )
    return stored
