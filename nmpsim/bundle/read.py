"""Read a bundle: check everything. What was checked is what is used: the file is read once.

Whatever is in the file, the outcome is a :class:`Bundle` or one
:class:`~nmpsim.diagnostics.UserError`. The records are read with the formats of
:mod:`nmpsim.bundle.elf`, each after a check that it lies inside the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.check import Memory, Range, check_metadata
from nmpsim.bundle.elffile import ElfFile, ElfSection
from nmpsim.bundle.file import DIGEST_BYTES, BundleFile, digest_of_file
from nmpsim.bundle.image import MemoryImage, map_segments
from nmpsim.bundle.layout import DEBUG_SECTIONS, DIGEST, META
from nmpsim.bundle.metadata import Metadata
from nmpsim.bundle.schema import metadata_from_json
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.records import frozen
from nmpsim.visible import visible_line

if TYPE_CHECKING:
    from nmpsim.lir.nodes import Module


ALIGNMENT = 64
"""Bytes of a line of the host's cache."""


@frozen(eq=False)
class Bundle:
    """A bundle in memory, checked."""

    metadata: Metadata
    image: npt.NDArray[np.uint8]
    """The read-only part: code, descriptors, constants; a view of ``file`` where the file's layout
    allows it."""
    image_base: int
    """Address of ``image[0]``."""
    rw_base: int
    """First address of the read-write memory; zero when a run begins."""
    rw_bytes: int
    symbols: Mapping[str, int]
    """Address of each named tensor, descriptor and piece of code."""
    symbol_sizes: Mapping[str, int]
    """Bytes of each symbol; 0 if it does not say."""
    text: tuple[Range, ...]
    """Address ranges of code."""
    sections: Mapping[str, Range]
    """Address range of each loaded section."""
    path: str
    digest: str
    """SHA-256 of the file, in hexadecimal; a name for these contents."""
    debug: Mapping[str, memoryview]
    """Contents of the debug sections that there are, unread."""
    file: memoryview
    """The whole file, as it was when it was read."""

    def module(self) -> Module:
        """The LIR module that the bundle was made from; its constants are read-only.

        Read and checked again at each call; instructions know the operation of the model's file
        that they come from. Raises :class:`~nmpsim.diagnostics.UserError`: BUN005 if the bundle
        carries none, BUN002 if it cannot be used, BUN003 if it is another version's.
        """
        from nmpsim.bundle.debug import read_module

        module = read_module(self.debug, self.image, self.image_base, Place(self.path))
        origins = self.metadata.origins
        return module if not origins else _with_origins(module, origins)

    def require_device(self) -> Mapping[str, Any]:
        """Return the settings that it was compiled for; raise UserError (BUN004) without them."""
        settings = self.metadata.device
        missing = [name for name in ("cores_count", "scratchpad_bytes") if name not in settings]
        if missing:
            raise fail(
                "BUN004",
                "the bundle does not say which device it was compiled for",
                place=Place(self.path),
                found="no device" if not settings else f"a device without {' and '.join(missing)}",
                expected="the settings of a device, cores_count and scratchpad_bytes among them",
                hint="compile the network again",
            )
        return settings

    def __repr__(self) -> str:
        metadata = self.metadata
        layers = "1 layer" if len(metadata.layers) == 1 else f"{len(metadata.layers)} layers"
        text = f"{metadata.program}: {layers}, {len(self.file):,} bytes, {self.path}"
        return visible_line(f"<Bundle {text}>")

    def __reduce__(self) -> tuple[Callable[..., Bundle], tuple[bytes, str]]:
        """To another process as its file's bytes, which are checked there: it needs no file."""
        return bundle_from_bytes, (bytes(self.file), self.path)


def _with_origins(module: Module, origins: Mapping[str, str]) -> Module:
    """Errors about an instruction name the operation of the model's file, too."""
    instructions = (
        attrs.evolve(one, span=attrs.evolve(one.span, node=origins.get(one.name, "")))
        for one in module.instructions
    )
    return attrs.evolve(module, instructions=tuple(instructions))


class BundleHolder(Protocol):
    """What a bundle can be had of, as of what :func:`nmpsim.compile` gives."""

    @property
    def bundle(self) -> Bundle:
        """The bundle."""


def get_bundle(program: Bundle | BundleHolder) -> Bundle:
    """The bundle itself, or the one that ``program`` holds; ARG001 for anything else."""
    bundle = program if isinstance(program, Bundle) else getattr(program, "bundle", None)
    if not isinstance(bundle, Bundle):
        raise fail(
            "ARG001",
            "this is no program that a device runs",
            found=f"{type(program).__name__} {program!r}"[:80],
            expected="what nmpsim.load or nmpsim.compile gives",
            hint="nmpsim.load(PATH) reads a bundle's file",
        )
    return bundle


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """The bundle in the file ``path``.

    Raises :class:`~nmpsim.diagnostics.UserError`: FILE001 if the file cannot be read, BUN001 if it
    is no bundle, BUN002 if it is damaged, BUN003 if it is another version's.
    """
    return _bundle(_file_bytes(Path(path)), str(path))


def bundle_from_bytes(data: bytes | memoryview | BundleFile, path: str = "<bytes>") -> Bundle:
    """The bundle that ``data`` holds, as :func:`read_bundle` would read it from a file."""
    if isinstance(data, BundleFile):
        buffer = _aligned(data.nbytes)
        data.fill(buffer.data)
    else:
        buffer = _aligned(len(data))
        buffer[:] = np.frombuffer(data, np.uint8)
    return _bundle(buffer, path)


def _aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    """Memory that begins where a line of the host's cache does, as kernels like constants."""
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + nbytes]


def _bundle(buffer: npt.NDArray[np.uint8], path: str) -> Bundle:
    file = ElfFile(buffer.data, path)
    meta = _required_section(file, META)
    digest = _checked_digest(file)
    place = Place(path, offset=meta.offset)
    metadata = metadata_from_json(bytes(file.section_bytes(meta)), place)
    memory = map_segments(file, buffer)
    check_metadata(metadata, _ranges(memory), place)
    symbols = file.symbols()
    return Bundle(
        metadata=metadata,
        image=memory.image,
        image_base=memory.image_base,
        rw_base=memory.rw_base,
        rw_bytes=memory.rw_bytes,
        symbols={name: address for name, (address, _) in symbols.items()},
        symbol_sizes={name: nbytes for name, (_, nbytes) in symbols.items()},
        text=memory.text,
        sections=_loaded_sections(file),
        path=path,
        digest=digest.hex(),
        debug={
            name: file.section_bytes(file.sections[name])
            for name in DEBUG_SECTIONS
            if name in file.sections
        },
        file=file.data.toreadonly(),
    )


def _file_bytes(path: Path) -> npt.NDArray[np.uint8]:
    """What is in a file now; later changes of the file do not reach it."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _cannot_read(path, "it is not a file")
            buffer = _aligned(status.st_size)
            return buffer[: file.readinto(buffer.data)]
    except OSError as error:
        raise _cannot_read(path, error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the path
        raise _cannot_read(path, str(error)) from error


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a pipe at once, so that it can be refused; plain files do not care."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _cannot_read(path: Path, why: str) -> UserError:
    return fail("FILE001", f"cannot read the bundle: {why}", place=Place(str(path)))


def _required_section(file: ElfFile, name: str) -> ElfSection:
    section = file.sections.get(name)
    if section is None:
        raise fail(
            "BUN001",
            f"this is a RISC-V executable without the section {name}",
            place=Place(file.path),
            hint="a bundle is what `nmpsim compile` or `nmpsim asm` writes; see docs/bundle.md",
        )
    return section


def _checked_digest(file: ElfFile) -> bytes:
    section = _required_section(file, DIGEST)
    place = Place(file.path, offset=section.offset)
    stored = bytes(file.section_bytes(section))
    if len(stored) != DIGEST_BYTES:
        raise fail(
            "BUN002",
            "the digest has the wrong size",
            place=place,
            found=f"{len(stored)} bytes",
            expected=f"{DIGEST_BYTES} bytes",
        )
    actual = digest_of_file(file.data, section.offset)
    if actual != stored:
        raise fail(
            "BUN002",
            "the bundle is damaged: its contents do not match its digest",
            place=place,
            found=actual.hex(),
            expected=stored.hex(),
            hint="copy or compile it again",
        )
    return stored


def _ranges(memory: MemoryImage) -> Memory:
    return Memory(
        (memory.image_base, memory.image_base + len(memory.image)),
        (memory.rw_base, memory.rw_base + memory.rw_bytes),
        memory.text,
    )


def _loaded_sections(file: ElfFile) -> dict[str, Range]:
    return {
        name: (section.address, section.address + section.nbytes)
        for name, section in file.sections.items()
        if section.is_loaded
    }
