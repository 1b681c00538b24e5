"""Verifier of modules: names, operands, attributes, lifetimes and types.

``verify`` walks the program once, in order, and collects everything it finds; an instruction
whose operands or attributes are wrong is not asked about its types.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, KeysView

from nmpsim.diagnostics import Diagnostic, UserError, did_you_mean, quote
from nmpsim.lir.constraints import InstructionProblem, TypedInstruction, find_type_problems
from nmpsim.lir.nodes import (
    Instruction,
    Module,
    Operand,
    SourcePosition,
    TensorType,
    WeightVar,
)
from nmpsim.lir.opcodes import IN, OPCODES, Opcode, make_opcode_diagnostic
from nmpsim.records import frozen

# Lifetimes of tensors while the verifier walks through a program.
#
# A view has no life of its own: it is alive and written as the buffer is that it looks into.


@frozen
class TrackedTensor:
    """Tensor that a LivenessTracker tracks: a weight, a buffer, or a view of another tensor."""

    name: str
    type: TensorType
    storage: str
    """Name of the weight or buffer that holds the elements; its own except for a view."""
    constant: bool | None
    """True for the storage of a constant, False for an input or output, None for a buffer."""


class LivenessTracker:
    """Tracker of the tensors defined so far: whether each is live, and whether it is written."""

    def __init__(self) -> None:
        self._values: dict[str, TrackedTensor] = {}
        self._freed: dict[str, SourcePosition] = {}
        self._written: set[str] = set()

    def add_weight(self, weight: WeightVar) -> None:
        """Add a weight as a tensor that is live and written from the start."""
        value = TrackedTensor(weight.name, weight.type, weight.name, weight.constant)
        self._values[weight.name] = value
        self._written.add(weight.name)

    def add_buffer(self, name: str, type: TensorType) -> None:
        """Add a buffer with undefined contents."""
        self._values[name] = TrackedTensor(name, type, name, None)

    def add_view(self, name: str, type: TensorType, source: TrackedTensor | None) -> None:
        """Add a view of ``source``, or a buffer that counts as written if ``source`` is None."""
        if source is None:
            self.add_buffer(name, type)
            self._written.add(name)
        else:
            self._values[name] = TrackedTensor(name, type, source.storage, source.constant)

    def assume_written(self, names: Iterable[str]) -> None:
        """Mark tensors as written, after an instruction that could not be checked."""
        self._written.update(self._values[n].storage for n in names if n in self._values)

    def find_tensor(self, name: str) -> TrackedTensor | None:
        """Return the tensor ``name``, live or deallocated, or None if it is undefined."""
        return self._values.get(name)

    def list_names(self) -> KeysView[str]:
        """Return the names of all tensors defined so far."""
        return self._values.keys()

    def check_use(self, value: TrackedTensor) -> InstructionProblem | None:
        """Return a problem if a tensor has been deallocated, or None if it is live."""
        freed = self._freed.get(value.storage)
        if freed is None:
            return None
        message = f"%{value.name} is used after its deallocation"
        found = f"%{value.storage} was deallocated in line {freed.line}"
        return InstructionProblem(None, message, found, "a use before that line", "LIR010")

    def record_read(self, value: TrackedTensor) -> InstructionProblem | None:
        """Record a read of a tensor; return a problem if it is unwritten or freed, else None."""
        problem = self.check_use(value)
        if problem or value.storage in self._written:
            return problem
        self._written.add(value.storage)  # once is enough
        message = f"%{value.name} is read before it is written"
        expected = "an instruction before this one that writes it"
        return InstructionProblem(None, message, "undefined contents", expected, "LIR010")

    def record_write(self, value: TrackedTensor, reads_too: bool) -> InstructionProblem | None:
        """Record a write of a tensor; return a problem if it is constant or freed, else None."""
        if value.constant:
            found = f"the constant WeightVar %{value.storage}"
            message = f"%{value.name} cannot be written"
            return InstructionProblem(
                None, message, found, "an activation or a mutable WeightVar", "LIR007"
            )
        if problem := self.record_read(value) if reads_too else self.check_use(value):
            return problem
        self._written.add(value.storage)
        return None

    def end_lifetime(self, value: TrackedTensor, span: SourcePosition) -> InstructionProblem | None:
        """End the lifetime of a buffer; return a problem if it may not be freed, else None."""
        view = value.storage != value.name
        if view or value.constant is not None:
            what = "a tensorview" if view else "a WeightVar"
            message = f"%{value.name} cannot be deallocated"
            return InstructionProblem(None, message, what, "an allocactivation", "LIR010")
        if freed := self._freed.get(value.name):
            message = f"%{value.name} is deallocated twice"
            found = f"already deallocated in line {freed.line}"
            return InstructionProblem(None, message, found, "one deallocactivation", "LIR010")
        self._freed[value.name] = span
        return None


_DEFINING = ("allocactivation", "tensorview")
_MAX_HINTS = 20
"""Number of hints; finding a near name takes time in the number of names."""


def verify(module: Module, checked: Collection[str] = ()) -> None:
    """Verify a module; raise UserError with all problems of names, operands, lifetimes and types.

    Parameters
    ----------
    module : Module
        The module.
    checked : collection of str
        Names of instructions whose types have been checked before.
    """
    found = _Verifier(module, checked).findings()
    if found:
        raise UserError(found)


class _Verifier:
    """Walk through one module that collects its problems."""

    def __init__(self, module: Module, checked: Collection[str]) -> None:
        self._module = module
        self._checked = checked
        self._found: list[Diagnostic] = []
        self._hints = 0
        self._defined: dict[str, SourcePosition] = {}
        self._liveness = LivenessTracker()
        self._later = {i.name for i in module.instructions if i.opcode in _DEFINING}
        self._dummies = _dummy_scaled(module)

    def findings(self) -> list[Diagnostic]:
        """Return all problems in the order of the text."""
        for weight in self._module.weights:
            self._type(weight.type, weight.name, weight.span)
            if self._define(weight.name, weight.span):
                self._liveness.add_weight(weight)
        previous = -1
        for position, instruction in enumerate(self._module.instructions):
            # After a gap the count goes on from there: one finding, not one for each line.
            if instruction.number not in (position, previous + 1):
                self._report(
                    "LIR005",
                    "instruction numbers are not contiguous",
                    instruction.span,
                    instruction.number,
                    previous + 1,
                    "Number the instructions consecutively from 0.",
                )
            previous = instruction.number
            self._instruction(instruction)
        return self._found

    def _report(
        self,
        code: str,
        message: str,
        span: SourcePosition,
        found: object,
        expected: object,
        hint: str | None = None,
    ) -> None:
        place = span.place(self._module.file)
        self._found.append(Diagnostic(code, message, place, str(found), str(expected), hint))

    def _hint(self, word: str, known: Iterable[str], prefix: str = "") -> str | None:
        self._hints += 1
        return did_you_mean(word, known, prefix) if self._hints <= _MAX_HINTS else None

    def _define(self, name: str, span: SourcePosition) -> bool:
        first = self._defined.setdefault(name, span)
        if first is span:
            return True
        message = f"%{quote(name)} is defined twice"
        expected = f"a new name; the first definition is in line {first.line}"
        self._report("LIR004", message, span, f"%{quote(name)}", expected)
        return False

    def _type(self, type: TensorType, name: str, span: SourcePosition) -> bool:
        problems = list(find_type_problems(type, name in self._dummies))
        for problem in problems:
            self._problem(problem, span, f"%{quote(name)}: ")
        return not problems

    def _problem(self, problem: InstructionProblem, span: SourcePosition, prefix: str = "") -> None:
        self._report(problem.code, prefix + problem.message, span, problem.found, problem.expected)

    def _instruction(self, instruction: Instruction) -> None:
        opcode = OPCODES.get(instruction.opcode)
        new = self._define(instruction.name, instruction.span)
        if opcode is None:
            self._unknown_opcode(instruction)
            self._liveness.assume_written(operand.name for operand in instruction.operands)
            return
        attributes_fit = self._attributes(instruction, opcode)
        values = self._operands(instruction, opcode)
        self._predicate(instruction)
        type = instruction.attributes.get("Ty")
        if isinstance(type, TensorType):
            type_fits = self._type(type, instruction.name, instruction.span)
            if new and instruction.opcode == "allocactivation":
                self._liveness.add_buffer(instruction.name, type)
            elif new and instruction.opcode == "tensorview":
                self._liveness.add_view(instruction.name, type, (values or {}).get("Src"))
            if not type_fits:
                return
        if values is not None and attributes_fit and instruction.name not in self._checked:
            types = {role: value.type for role, value in values.items()}
            if isinstance(type, TensorType):
                types["Ty"] = type
            self._rules(TypedInstruction(instruction, types))

    def _unknown_opcode(self, instruction: Instruction) -> None:
        self._hints += 1
        span = instruction.span
        place = span.place(self._module.file)
        may_hint = self._hints <= _MAX_HINTS
        self._found.append(make_opcode_diagnostic(instruction.opcode, place, may_hint))

    def _attributes(self, instruction: Instruction, opcode: Opcode) -> bool:
        before = len(self._found)
        given = instruction.attributes
        for name in given:
            if opcode.find_attribute(name) is None:
                known = [a.name for a in opcode.attributes]
                message = f"{opcode.name} has no attribute {quote(name)}"
                expected = ", ".join(known) or "no attributes"
                hint = self._hint(name, known)
                span = _attribute_span(instruction, name)
                self._report("LIR008", message, span, quote(name), expected, hint)
        for attribute in opcode.attributes:
            expected = f"{attribute.name}: {attribute.kind.text}"
            if attribute.name not in given:
                if attribute.required:
                    message = f"{opcode.name} lacks the attribute {attribute.name}"
                    self._report("LIR008", message, instruction.span, "nothing", expected)
            elif not attribute.kind.accepts(given[attribute.name]):
                message = f"attribute {attribute.name} is invalid"
                shown = quote(str(given[attribute.name]))
                span = _attribute_span(instruction, attribute.name)
                self._report("LIR008", message, span, shown, expected)
        return len(self._found) == before

    def _operands(
        self, instruction: Instruction, opcode: Opcode
    ) -> dict[str, TrackedTensor] | None:
        """Return the value of each role, or None if the operands do not fit the opcode."""
        kinds = tuple(operand.kind for operand in instruction.operands)
        if kinds != tuple(role.kind for role in opcode.operands):
            message = f"the operands of {opcode.name} are wrong"
            shown = ", ".join(kinds) or "no operands"
            expected = ", ".join(f"{r.kind} {r.name}" for r in opcode.operands) or "no operands"
            self._report("LIR007", message, self._misfit(instruction, opcode), shown, expected)
            self._liveness.assume_written(operand.name for operand in instruction.operands)
            return None
        values: dict[str, TrackedTensor] = {}
        # Everything is read before anything is written: buffers may be worked on in place.
        roles = list(zip(opcode.operands, instruction.operands, strict=True))
        for role, operand in sorted(roles, key=lambda pair: pair[0].kind != IN):
            value = self._value(operand)
            if value is not None:
                values[role.name] = value
                self._use(operand, value, instruction)
        return values if len(values) == len(roles) else None

    def _misfit(self, instruction: Instruction, opcode: Opcode) -> SourcePosition:
        """Return the position of the first wrong operand, or of the instruction."""
        for i, operand in enumerate(instruction.operands):
            if i >= len(opcode.operands) or operand.kind != opcode.operands[i].kind:
                return operand.span
        return instruction.span

    def _value(self, operand: Operand) -> TrackedTensor | None:
        value = self._liveness.find_tensor(operand.name)
        if value is not None:
            return value
        name = f"%{quote(operand.name)}"
        if operand.name in self._later and operand.name not in self._defined:
            message, expected = (
                f"{name} is used before its definition",
                "a definition before this instruction",
            )
            self._report("LIR010", message, operand.span, name, expected)
        elif operand.name in self._defined:
            expected = "a WeightVar, an allocactivation or a tensorview"
            self._report("LIR003", f"{name} is not a tensor", operand.span, name, expected)
        else:
            hint = self._hint(operand.name, self._liveness.list_names(), "%")
            expected = "a name defined before"
            self._report("LIR003", f"unknown name {name}", operand.span, name, expected, hint)
        return None

    def _use(self, operand: Operand, value: TrackedTensor, instruction: Instruction) -> None:
        if instruction.opcode == "deallocactivation":
            problem = self._liveness.end_lifetime(value, instruction.span)
        elif operand.kind == IN:
            reads = instruction.opcode != "tensorview"
            problem = (
                self._liveness.record_read(value) if reads else self._liveness.check_use(value)
            )
        else:
            problem = self._liveness.record_write(value, reads_too=operand.kind != "@out")
        if problem:
            self._problem(problem, operand.span)

    def _predicate(self, instruction: Instruction) -> None:
        if instruction.predicate is None:
            return
        value = self._value(Operand(IN, instruction.predicate, instruction.span))
        if value is not None and (problem := self._liveness.record_read(value)):
            self._problem(problem, instruction.span)

    def _rules(self, site: TypedInstruction) -> None:
        """Apply the rules in order; a rule after a broken one may not be applicable."""
        opcode = OPCODES[site.instruction.opcode]
        places = {
            role.name: operand.span
            for role, operand in zip(opcode.operands, site.instruction.operands, strict=True)
        }
        for rule in opcode.rules:
            problems = list(rule.find_problems(site.names))
            for problem in problems:
                at_fault = problem.role or problem.attribute or ""
                span = places.get(at_fault) or _attribute_span(site.instruction, at_fault)
                self._problem(problem, span)
            if problems:
                return


def _attribute_span(instruction: Instruction, name: str) -> SourcePosition:
    """Return the position of an attribute, or of an instruction that has no text."""
    return instruction.attribute_spans.get(name, instruction.span)


def _dummy_scaled(module: Module) -> frozenset[str]:
    """Return names that are used only where their type's scale has no meaning."""
    dummy: set[str] = set()
    meant: set[str] = set()
    for instruction in module.instructions:
        if instruction.opcode == "deallocactivation":
            continue
        opcode = OPCODES.get(instruction.opcode)
        roles = opcode.operands if opcode else ()
        for role, operand in zip(roles, instruction.operands, strict=False):
            is_dummy = role.is_scratch or role.is_on_sums or role.scales is not None
            (dummy if is_dummy else meant).add(operand.name)
    return frozenset(dummy - meant)
