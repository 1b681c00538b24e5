"""Check of each access against the allocation that its address was derived from.

The check follows pointers through registers and memory while the reference engine runs. It reports
accesses outside of a global object, a stack variable or a block of the heap, uses of variables of
functions that have returned and of freed blocks, addresses in another core's scratchpad, and uses
of undefined memory on stacks and in blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from nmpsim.bundle.read import Bundle
from nmpsim.core.reference.commits import Commit
from nmpsim.debugger.instructions import list_accesses
from nmpsim.debugger.pointer_check.allocations import AllocationTable, MemoryObject
from nmpsim.debugger.pointer_check.heap import A0, AllocatorCall, AllocatorRole, Heap
from nmpsim.debugger.pointer_check.shadow import (
    ALL_BYTES,
    INTEGER,
    Base,
    CoreShadow,
    MemoryShadow,
    PointerByte,
    RegisterShadow,
)
from nmpsim.debuginfo.source_map import SourceMap
from nmpsim.isa.codec import decode
from nmpsim.isa.table import (
    DESCRIPTORS,
    DRAM_BASE,
    RS1,
    RS2,
    SCRATCHPAD_BASE,
    DeviceInstruction,
    InstructionKind,
)
from nmpsim.report.pointers import PointerFinding, PointerReport

MAX_FINDINGS = 100
"""Maximum number of reported errors."""
MAX_CALLS = 4
"""Maximum number of calls that the hint of a finding lists."""
MAX_FRAME = 1 << 20
"""Largest change of the stack pointer that is a new or a removed stack frame."""
RA, SP, GP, TP = 1, 2, 3, 4
_MASK = 0xFFFF_FFFF


class PointerCheck:
    """Listener of commits that reports wrong uses of pointers, each place once."""

    def __init__(
        self,
        bundle: Bundle,
        source_map: SourceMap,
        cores_count: int,
        allocators: Sequence[str] = (),
    ) -> None:
        self.findings: list[PointerFinding] = []
        """Errors in the order in which they were found."""
        self._source_map = source_map
        self._allocations = AllocationTable(bundle, source_map)
        self._heap = Heap(bundle, allocators)
        self._memory = MemoryShadow()
        self._cores = [CoreShadow() for _ in range(cores_count)]
        self._reported: set[tuple[str, str]] = set()
        self._handlers: Mapping[InstructionKind, Callable[..., RegisterShadow]] = {
            InstructionKind.UPPER: self._follow_upper,
            InstructionKind.JUMP: self._follow_jump,
            InstructionKind.BRANCH: self._follow_branch,
            InstructionKind.LOAD: self._follow_load,
            InstructionKind.STORE: self._follow_store,
            InstructionKind.IMMEDIATE: self._follow_immediate,
            InstructionKind.REGISTER: self._follow_register,
            InstructionKind.MULTIPLY: self._follow_number,
            InstructionKind.DIVIDE: self._follow_number,
            InstructionKind.TENSOR: self._follow_tensor,
        }

    def make_report(self) -> PointerReport:
        """Return the report of the check."""
        return PointerReport(tuple(self.findings), self._allocations.limits)

    def __call__(self, commit: Commit) -> None:
        """Follow the instruction of a commit, and check its accesses."""
        instruction = commit.instruction
        if instruction is None:
            return
        core = self._cores[commit.core]
        if core.allocator_call is not None:
            self._leave_allocator(core, commit, core.allocator_call)
        elif commit.pc in self._heap.functions:
            self._enter_allocator(core, commit, self._heap.functions[commit.pc])
        handler = self._handlers.get(instruction.kind)
        result = INTEGER if handler is None else handler(core, commit, instruction)
        rd = commit.rd
        if rd == SP:
            self._move_stack(core, commit)
        if rd in (SP, GP, TP):
            result = RegisterShadow(Base.BASE, commit.value)
        if rd:
            core.values[rd] = commit.value
            core.registers[rd] = result

    # --- propagation ------------------------------------------------------------------------------

    def _follow_upper(
        self, core: CoreShadow, commit: Commit, instruction: DeviceInstruction
    ) -> RegisterShadow:
        return RegisterShadow(Base.BASE, commit.value)

    def _follow_jump(
        self, core: CoreShadow, commit: Commit, instruction: DeviceInstruction
    ) -> RegisterShadow:
        if instruction.mnemonic == "jalr":
            register = RS1.decode(commit.word)
            self._check_defined(core, commit, register, "is a jump target")
            if commit.rd == 0 and register == RA and core.calls:
                core.calls.pop()
        if commit.rd == RA:
            core.calls.append(commit.pc)
        return INTEGER

    def _follow_branch(
        self, core: CoreShadow, commit: Commit, instruction: DeviceInstruction
    ) -> RegisterShadow:
        for field in (RS1, RS2):
            self._check_defined(core, commit, field.decode(commit.word), "decides a branch")
        return INTEGER

    def _follow_immediate(
        self, core: CoreShadow, commit: Commit, instruction: DeviceInstruction
    ) -> RegisterShadow:
        source, mnemonic = core.registers[RS1.decode(commit.word)], instruction.mnemonic
        immediate = _get_immediate(commit)
        if mnemonic == "addi":
            constant = source.constant + immediate & _MASK
            if source.origin is Base.BASE and constant == commit.value:
                found = self._find_allocation(core, commit, constant, commit.pc)
                return RegisterShadow(found or Base.BASE, constant)
            return self._keep(source._replace(constant=constant), immediate == 0)
        if mnemonic == "andi":
            defined = sum(1 << byte for byte in range(4) if immediate >> 8 * byte & 0xFF)
            origin = source.origin if isinstance(source.origin, MemoryObject) else None
            return self._keep(RegisterShadow(origin, 0, source.undefined & defined))
        return self._keep(RegisterShadow(None, 0, source.undefined))

    def _follow_register(
        self, core: CoreShadow, commit: Commit, instruction: DeviceInstruction
    ) -> RegisterShadow:
        numbers = RS1.decode(commit.word), RS2.decode(commit.word)
        one, other = (core.registers[number] for number in numbers)
        mnemonic, undefined = instruction.mnemonic, max(one.undefined, other.undefined)
        if numbers[0] == numbers[1] and mnemonic in ("sub", "xor"):
            return INTEGER
        origin, constant = None, 0
        first, second = (
            None if isinstance(x.origin, PointerByte) else x.origin for x in (one, other)
        )
        if mnemonic == "add":
            constant = one.constant + other.constant & _MASK
            origin = _merge_origins(first, second)
        elif mnemonic == "sub" and second is None:
            origin = first if isinstance(first, MemoryObject) else None
        elif mnemonic in ("and", "or") and (first is None or second is None):
            found = first or second
            origin = found if isinstance(found, MemoryObject) else None
        return self._keep(RegisterShadow(origin, constant, undefined))

    def _follow_number(
        self, core: CoreShadow, commit: Commit, instruction: DeviceInstruction
    ) -> RegisterShadow:
        numbers = RS1.decode(commit.word), RS2.decode(commit.word)
        undefined = max(core.registers[number].undefined for number in numbers)
        return self._keep(RegisterShadow(None, 0, undefined))

    def _keep(self, result: RegisterShadow, is_move: bool = False) -> RegisterShadow:
        """Return the shadow of a result, which is defined if an operand is partly defined.

        Library functions compute with words that contain bytes after the end of a string.
        """
        if not result.undefined or is_move:
            return result
        return result._replace(undefined=ALL_BYTES if result.undefined == ALL_BYTES else 0)

    # --- accesses ---------------------------------------------------------------------------------

    def _follow_load(
        self, core: CoreShadow, commit: Commit, instruction: DeviceInstruction
    ) -> RegisterShadow:
        nbytes, address = instruction.access_bytes, commit.address
        allocation = self._check_access(core, commit, nbytes, "load")
        found = self._memory.load(commit.core, address, nbytes)
        if nbytes < 4:
            return found
        if found.origin is Base.BASE:
            found = found._replace(constant=commit.value)
        owner = self._allocations.find_object(address) if found.origin is None else None
        if owner is not None and not owner.contains(core.values[SP]):  # not on the stack
            pointed = self._allocations.find_object(commit.value)
            if pointed is not None and pointed.start == commit.value:
                found = found._replace(origin=pointed)
        if allocation is not None and allocation.contains(address):
            outside = sum(1 << byte for byte in range(4) if address + byte >= allocation.end)
            found = found._replace(undefined=found.undefined | outside)
        return found

    def _follow_store(
        self, core: CoreShadow, commit: Commit, instruction: DeviceInstruction
    ) -> RegisterShadow:
        self._check_access(core, commit, instruction.access_bytes, "store")
        value = core.registers[RS2.decode(commit.word)]
        if value.origin is Base.BASE and value.constant != commit.stored:
            value = value._replace(origin=None)
        self._memory.store(commit.core, commit.address, instruction.access_bytes, value)
        return INTEGER

    def _follow_tensor(
        self, core: CoreShadow, commit: Commit, instruction: DeviceInstruction
    ) -> RegisterShadow:
        record = DESCRIPTORS[instruction.descriptor or ""]
        names = [word.name for word in record]
        words = dict(zip(names, commit.words, strict=False))
        if len(words) < len(names):
            return INTEGER
        self._check_access(core, commit, record.nbytes, f"descriptor of {instruction.mnemonic}")
        for access in list_accesses(instruction, words, commit.word, commit.address):
            region = access.region
            if region.is_empty:
                continue
            if access.operand in names:
                place = commit.address + 4 * names.index(access.operand)
                origin = self._memory.load(commit.core, place, 4).origin
                owner = origin if isinstance(origin, MemoryObject) else None
                owner = owner or self._allocations.find_initialized(place, words[access.operand])
                owner = owner or self._allocations.find_object(region.start)
                if owner is not None:
                    text = f"{access.kind} of {access.operand} of {instruction.mnemonic}"
                    nbytes = region.end - region.start
                    self._check_bounds(core, commit, owner, region.start, nbytes, text)
            if access.kind == "write" and region.end - region.start <= MAX_FRAME:
                nbytes = region.end - region.start
                self._memory.define(commit.core, region.start, nbytes)
        return INTEGER

    def _check_access(
        self, core: CoreShadow, commit: Commit, nbytes: int, text: str
    ) -> MemoryObject | None:
        """Check an access through rs1; return the allocation that the address belongs to."""
        number = RS1.decode(commit.word)
        self._check_defined(core, commit, number, "is used as an address")
        base, address = core.registers[number], commit.address
        origin = base.origin
        if origin is Base.BASE:
            anchor = base.constant + _get_immediate(commit) & _MASK
            if anchor == address:
                return None
            found = self._find_allocation(core, commit, anchor, 0)
            if found is None or found.start != anchor:
                return None
            origin = found
        if not isinstance(origin, MemoryObject):
            return None
        self._check_bounds(core, commit, origin, address, nbytes, text)
        return origin

    def _check_bounds(
        self,
        core: CoreShadow,
        commit: Commit,
        owner: MemoryObject,
        address: int,
        nbytes: int,
        text: str,
    ) -> None:
        unit = "byte" if nbytes == 1 else "bytes"
        what = f"{text} of {nbytes} {unit}"
        is_partial = text == "load" and nbytes == 4 and owner.contains(address)
        if owner.end_reason:
            self._report(core, commit, f"{what} at {owner.name}, {owner.end_reason}")
        elif owner.core not in (-1, commit.core) and SCRATCHPAD_BASE <= address < DRAM_BASE:
            self._report(
                core, commit, f"{what} at {owner.name}, which is in the scratchpad of"
                f" core {owner.core}, by core {commit.core}",
            )  # fmt: skip
        elif not (owner.start <= address and address + nbytes <= owner.end) and not is_partial:
            self._report(core, commit, f"{what} at {owner.describe_offset(address, nbytes)}")

    def _check_defined(self, core: CoreShadow, commit: Commit, number: int, use: str) -> None:
        """Report an undefined register, and continue as if it were defined."""
        shadow = core.registers[number]
        if shadow.undefined == ALL_BYTES:
            core.registers[number] = shadow._replace(undefined=0)
            self._report(core, commit, f"a value that was never written {use}")

    # --- stacks -----------------------------------------------------------------------------------

    def _move_stack(self, core: CoreShadow, commit: Commit) -> None:
        """Make the variables of a removed frame stale, and the bytes of a new frame undefined."""
        old, new = core.values[SP], commit.value
        if old == 0 or abs(new - old) > MAX_FRAME:
            return
        if new < old:
            self._memory.undefine(commit.core, new, old)
        for key in [key for key in core.variables if key[0] < new]:
            one = core.variables.pop(key)
            one.end_reason = f"a {one.owner}, which has returned"

    def _find_allocation(
        self, core: CoreShadow, commit: Commit, address: int, pc: int
    ) -> MemoryObject | None:
        """Return the variable of the current function, or the global object, at an address.

        ``pc`` is that of the instruction that completes the address, or 0.
        """
        stack, rules = core.values[SP], self._source_map.find_unwind_row(commit.pc)
        if rules is not None:
            frame = core.values[rules.base_register] + rules.base_offset
            if address == frame:
                return None
            if stack <= address < frame:
                return self._find_variable(core, commit, frame, address)
        return self._allocations.find_relocated(pc, address)

    def _find_variable(
        self, core: CoreShadow, commit: Commit, frame: int, address: int
    ) -> MemoryObject | None:
        for one in self._allocations.find_variables(commit.pc):
            start = frame + (one.frame_offset or 0)
            if start <= address < start + one.nbytes:
                known = core.variables.get((start, one.name))
                if known is None or known.nbytes != one.nbytes:
                    function = self._source_map.find_function(commit.pc)
                    name = "" if function is None else f"variable of {function.name}"
                    known = MemoryObject(one.name, start, one.nbytes, name, commit.core)
                    core.variables[start, one.name] = known
                return known
        return None

    # --- heap -------------------------------------------------------------------------------------

    def _enter_allocator(self, core: CoreShadow, commit: Commit, role: AllocatorRole) -> None:
        """Note a call of an allocator, and report the free of what is not a block."""
        first, second = core.values[A0], core.values[A0 + 1]
        if misuse := self._heap.find_misuse(role, first):
            self._report(core, commit, misuse, core.calls[-1] if core.calls else commit.pc)
        site = self._source_map.describe(core.calls[-1]) if core.calls else "unknown code"
        core.allocator_call = AllocatorCall(
            role, (first, second), core.values[RA], core.values[SP], site
        )

    def _leave_allocator(self, core: CoreShadow, commit: Commit, call: AllocatorCall) -> None:
        """Change the blocks if a call of an allocator has returned."""
        if commit.pc != call.return_address or core.values[SP] < call.stack_pointer:
            return
        core.allocator_call = None
        kept = self._heap.get_size(call.arguments[0]) if call.role == "realloc" else 0
        block = self._heap.finish_call(call, core.values[A0])
        if block is None:
            return
        core.registers[A0] = RegisterShadow(block)
        if call.role != "calloc" and kept < block.nbytes <= MAX_FRAME:
            self._memory.undefine(commit.core, block.start + kept, block.end)

    # --- reports ----------------------------------------------------------------------------------

    def _report(self, core: CoreShadow, commit: Commit, text: str, pc: int | None = None) -> None:
        """Add a finding unless one with the same text, apart from numbers, exists for its line.

        ``pc`` is the address of the instruction if it is not the one that was executed.
        """
        if core.allocator_call is not None:
            return
        sources, pc = self._source_map, commit.pc if pc is None else pc
        line, (frame, *_) = sources.find_line(pc), sources.list_frames(pc)
        key = (str(line or pc), re.sub(r"[-+]?\d+", "", text))
        if key in self._reported or len(self.findings) >= MAX_FINDINGS:
            return
        self._reported.add(key)
        calls = tuple(sources.describe(one) for one in core.calls[: -MAX_CALLS - 1 : -1])
        text = f"in {frame.function or 'unknown code'}: {text}"
        file, number = (None, None) if line is None else (line.file, line.line)
        self.findings.append(PointerFinding(text, file, number, commit.core, pc, calls))


def _get_immediate(commit: Commit) -> int:
    """Return the immediate operand of an instruction, or 0 without one."""
    decoded = decode(commit.word)
    return 0 if decoded is None else decoded.operands.get("imm", 0)


def _merge_origins(
    first: MemoryObject | Base | None, second: MemoryObject | Base | None
) -> MemoryObject | Base | None:
    """Return the origin of a sum: that of its only pointer; None for the sum of two pointers."""
    found = [one for one in (first, second) if one is not None]
    pointers = [one for one in found if isinstance(one, MemoryObject)]
    if len(pointers) == 2:
        return None
    return (pointers or found or [None])[0]
