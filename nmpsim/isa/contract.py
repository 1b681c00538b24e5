"""The contract of the instruction set: cases that it leaves undefined, by category.

The result of a program that respects the contract is the same on a chip: it depends neither on the
time of a transfer nor on the previous contents of memory. ``docs/isa.md`` has the table.
"""

from __future__ import annotations

from enum import Enum

from nmpsim.records import frozen


class ViolationCategory(Enum):
    """Category of a contract violation; its value is the code of the diagnostic."""

    UNDEFINED = "CONTRACT001"
    UNPREDICTABLE_VALUE = "CONTRACT002"
    MISSING_SYNCHRONIZATION = "CONTRACT003"
    NOT_SUPPORTED = "CONTRACT004"
    INTERNAL = "CONTRACT005"

    @property
    def title(self) -> str:
        """Name of the category in reports."""
        return _TITLES[self]


_TITLES = {
    ViolationCategory.UNDEFINED: "undefined",
    ViolationCategory.UNPREDICTABLE_VALUE: "unpredictable value used",
    ViolationCategory.MISSING_SYNCHRONIZATION: "missing synchronization",
    ViolationCategory.NOT_SUPPORTED: "not supported",
    ViolationCategory.INTERNAL: "internal",
}


class Detection(Enum):
    """Detection of an undefined case: by ``--strict``, a trap, an error, or not at all."""

    STRICT = "`--strict`"
    TRAP = "a trap, always"
    EXIT = "an error, always"
    NOTHING = "nothing"


@frozen
class UndefinedCase:
    """A case that the instruction set leaves undefined."""

    key: str
    category: ViolationCategory
    title: str
    """Description of what the program does."""
    simulator: str
    """Behavior of the simulator without ``--strict``."""
    hint: str
    found_by: Detection = Detection.STRICT


CASES: tuple[UndefinedCase, ...] = (
    UndefinedCase(
        "scratchpad_unwritten",
        ViolationCategory.UNPREDICTABLE_VALUE,
        "an instruction reads scratchpad that nothing has written; of a scalar load's bytes one"
        " that was written is enough",
        "zeros",
        "Load or fill all bytes that the instruction reads, including padding and records.",
    ),
    UndefinedCase(
        "dram_unwritten",
        ViolationCategory.UNPREDICTABLE_VALUE,
        "a load or an instruction of a core reads DRAM of the writable segment that neither the"
        " host nor a core has written",
        "zeros",
        "Store the data first, or make it an input. Put constants into the read-only segment.",
    ),
    UndefinedCase(
        "host_reads_unwritten",
        ViolationCategory.UNPREDICTABLE_VALUE,
        "the host reads a tensor, an output of the program among them, of which bytes were never"
        " written",
        "zeros",
        "Store the whole tensor before the cores halt.",
    ),
    UndefinedCase(
        "unit_order",
        ViolationCategory.MISSING_SYNCHRONIZATION,
        "two instructions of a core touch the same bytes, one of them writes, the first is for a"
        " unit that the second does not go to, and the core has not waited for it",
        "the first takes effect first",
        "Put an nmp.wait for the unit of the first instruction between them.",
    ),
    UndefinedCase(
        "core_order",
        ViolationCategory.MISSING_SYNCHRONIZATION,
        "two cores touch the same bytes of DRAM, one of them writes, and no barrier, no post and"
        " pend and no word of the control block that the first one has written comes between"
        " them; or the first core has not waited for its unit before",
        "the one that is first in simulated time takes effect first",
        "Let the first core wait for its unit. Then use a barrier, or post in the first core and"
        " pend in the second.",
    ),
    UndefinedCase(
        "host_order",
        ViolationCategory.MISSING_SYNCHRONIZATION,
        "the host reads what a store still writes when its core halts, or writes what a load still"
        " reads",
        "the transfer is done",
        "Put nmp.wait before nmp.halt.",
    ),
    UndefinedCase(
        "fetch_order",
        ViolationCategory.MISSING_SYNCHRONIZATION,
        "an instruction or a descriptor is fetched from bytes that a unit or another core writes,"
        " and nothing orders that",
        "the new bytes are fetched",
        "Wait for the load of these bytes.",
    ),
    UndefinedCase(
        "barrier_counts",
        ViolationCategory.UNDEFINED,
        "cores meet at one barrier and do not name the same number of cores",
        "the number that the last one names counts",
        "Use the same number of cores at each of these barriers.",
    ),
    UndefinedCase(
        "weight_tail",
        ViolationCategory.UNDEFINED,
        "weights of nmp.conv are not zero behind the last input of a row, or behind the last"
        " output channel",
        "these bytes are ignored",
        "Pad blocks of weights with zeros.",
    ),
    UndefinedCase(
        "descriptor",
        ViolationCategory.UNDEFINED,
        "a descriptor is impossible: sizes, addresses, shifts, scales, clips",
        "operand fault",
        "Correct the descriptor word at the address in mtval.",
        Detection.TRAP,
    ),
    UndefinedCase(
        "overlap",
        ViolationCategory.UNDEFINED,
        "an instruction would write onto its own operands, or its result onto itself",
        "operand fault; nmp.eltwise, nmp.rescale and nmp.lut may write exactly where they read",
        "Write the result to memory that does not overlap the operands.",
        Detection.TRAP,
    ),
    UndefinedCase(
        "encoding",
        ViolationCategory.UNDEFINED,
        "an instruction word, a CSR, a unit or a semaphore that the tables do not have",
        "illegal instruction",
        "Use only encodings in the tables.",
        Detection.TRAP,
    ),
    UndefinedCase(
        "profile",
        ViolationCategory.NOT_SUPPORTED,
        "arithmetic that an instruction does not have, as a profile of another instruction",
        "operand fault",
        "Use a profile that the instruction supports.",
        Detection.TRAP,
    ),
    UndefinedCase(
        "misaligned",
        ViolationCategory.NOT_SUPPORTED,
        "a scalar access, a jump or a descriptor at an address that is not aligned",
        "a trap of its own",
        "Align the address.",
        Detection.TRAP,
    ),
    UndefinedCase(
        "not_checked",
        ViolationCategory.NOT_SUPPORTED,
        "a program with more open accesses, older posts or more instructions after a post than the"
        " check keeps",
        "it runs on; the report says that the contract was not proved",
        "Add barriers between the cores.",
        Detection.NOTHING,
    ),
    UndefinedCase(
        "interrupted_wait",
        ViolationCategory.NOT_SUPPORTED,
        "a program counts on interrupts, as by wfi",
        "wfi does nothing, nothing ever interrupts",
        "Poll, or use barriers and semaphores.",
        Detection.NOTHING,
    ),
    UndefinedCase(
        "pend_race",
        ViolationCategory.UNDEFINED,
        "several cores pend at one semaphore, and the answer hangs on which of them is served",
        "who comes first in simulated time; of those who wait the lowest core number",
        "Use a separate semaphore for each core.",
        Detection.NOTHING,
    ),
    UndefinedCase(
        "control_race",
        ViolationCategory.UNDEFINED,
        "the answer hangs on the order in which cores write and read words of the control block",
        "they do it in order of simulated time",
        "Use barriers or semaphores.",
        Detection.NOTHING,
    ),
    UndefinedCase(
        "bug",
        ViolationCategory.INTERNAL,
        "nmpsim breaks a rule of its own",
        "exit code 3",
        "Report the error.",
        Detection.EXIT,
    ),
)
"""All cases in the order of the page; compiled code uses the position as their number."""

NUMBER_OF_CASE = {case.key: number for number, case in enumerate(CASES)}

DEFINED: tuple[str, ...] = (
    "registers, semaphores and the control block are zero when a run begins",
    "a descriptor is read when its instruction is issued and may be overwritten from then on",
    "words of a descriptor that its profile does not use are ignored; no word is reserved",
    "a word of the control block is read and written at once: a core that reads it comes after"
    " those that have written it",
    "instructions of one unit take effect in order, without a wait between them",
    "a core waits for room in a full queue, so it knows that all but the last instructions of the"
    " unit, as many as the queue holds, are done",
    "scratchpads and DRAM keep what they hold while the host works between two parts of a program",
)
"""Behavior that is defined although it is undefined in some instruction sets."""
