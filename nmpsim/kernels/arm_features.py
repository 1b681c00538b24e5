"""What LLVM knows of a processor of Arm's without listing it among the host's features."""

from __future__ import annotations

from llvmlite import binding

_DOT = "+dotprod"
_PROBE = """target triple = "{triple}"
declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)
define i32 @probe(<16 x i8> %a, <16 x i8> %b) {{
  %x = sext <16 x i8> %a to <16 x i32>
  %y = sext <16 x i8> %b to <16 x i32>
  %z = mul <16 x i32> %x, %y
  %sum = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %z)
  ret i32 %sum
}}"""
"""A sum of products that LLVM compiles to ``sdot`` where the processor has it."""


def with_implied(features: frozenset[str], triple: str, name: str) -> frozenset[str]:
    """The features, and ``+dotprod`` where the processor's name implies it.

    On Arm LLVM lists some of a host's features only, and none on macOS; the rest follows from the
    name. Other architectures are left as they are. Their targets have to be initialized.

    Args:
        features: as LLVM names them: ``+neon``.
        triple: that of the target.
        name: that of the processor, as LLVM has it.
    """
    if triple.partition("-")[0] not in ("aarch64", "arm64") or _DOT in features:
        return features
    target = binding.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=name, features=",".join(sorted(features - {""})))
    code = machine.emit_assembly(binding.parse_assembly(_PROBE.format(triple=triple)))
    return features | {_DOT} if "sdot" in code else features
