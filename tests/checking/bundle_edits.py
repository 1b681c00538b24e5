"""Change bundles in ways that no compiler would."""

from pathlib import Path

from elftools.elf.elffile import ELFFile

from nmpsim.bundle import Bundle, read_bundle
from nmpsim.bundle.assembly.disassembler import analyze_code
from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.file import DIGEST_BYTES, compute_digest
from nmpsim.bundle.layout import DIGEST
from nmpsim.isa.codec import decode_descriptor, encode_descriptor


def change_descriptor(path: Path, kind: str, layer: int, field: str, by: int) -> None:
    """Add to a number in the first descriptor of a kind and a layer, in place."""
    address, values = next(
        (address, values)
        for address, values in descriptors(read_bundle(path), kind)
        if values["layer"] == layer
    )
    values[field] += by
    change_bytes(path, address, encode_descriptor(kind, values))


def descriptors(bundle: Bundle, kind: str):
    """Yield address and words of each descriptor of a kind that the code uses."""
    for start, stop in bundle.text:
        code = bundle.image[start - bundle.image_base : stop - bundle.image_base]
        for address, found in sorted(
            analyze_code(code.view("<u4").tolist(), start).descriptors.items()
        ):
            if found == kind:
                at = address - bundle.image_base
                yield address, decode_descriptor(kind, bundle.image[at : at + 512].tobytes())


def change_bytes(path: Path, address: int, new: bytes) -> None:
    """Change read-only memory in place."""
    data = bytearray(path.read_bytes())
    with path.open("rb") as file:
        for segment in ELFFile(file).iter_segments("PT_LOAD"):
            header = segment.header
            if header.p_vaddr <= address < header.p_vaddr + header.p_filesz:
                at = header.p_offset + address - header.p_vaddr
    data[at : at + len(new)] = new
    section = ElfFile(memoryview(bytes(data)), "").sections[DIGEST]
    digest = compute_digest(memoryview(bytes(data)), section.offset)
    data[section.offset : section.offset + DIGEST_BYTES] = digest
    path.write_bytes(data)
