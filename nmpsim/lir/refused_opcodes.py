"""Glow's instructions that are known but not executed, and the errors for unknown opcodes."""

from __future__ import annotations

import attrs

from nmpsim.diagnostics import Diagnostic, Place, did_you_mean
from nmpsim.lir.messages import quote
from nmpsim.lir.opcodes import OPCODES

_NEARNESS = 0.8
"""Similarity needed for a hint; opcodes are short words that resemble each other."""


def make_opcode_diagnostic(word: str, place: Place, may_hint: bool = True) -> Diagnostic:
    """Return the diagnostic for an unsupported (LIR012) or unknown (LIR006) opcode."""
    refusal = REFUSED.get(word)
    if refusal is not None:
        return Diagnostic(
            "LIR012",
            f"{word} is not supported",
            place,
            found=f"an instruction of Glow, but {refusal.reason}",
            expected="an opcode that is executed (docs/operations.md)",
            hint=refusal.hint,
        )
    known = (*OPCODES, *REFUSED)
    return Diagnostic(
        "LIR006",
        f"unknown opcode {quote(word)}",
        place,
        found=quote(word),
        expected="an opcode of the LIR",
        hint=did_you_mean(word, known, nearness=_NEARNESS) if may_hint else None,
    )


@attrs.frozen
class OpcodeRefusal:
    """Reason for refusing an opcode, and a hint for the user."""

    reason: str
    hint: str


_INFERENCE = "Compile the network for inference."
_TRAINING = OpcodeRefusal("it is part of training", _INFERENCE)
_LOSS = OpcodeRefusal("it is a loss function, a part of training", _INFERENCE)
_SPARSE = OpcodeRefusal(
    "it works on embedding tables or sparse lists, which nmpsim does not model",
    "Look up the rows on the host, and pass the dense result as an input.",
)
_AUDIO = OpcodeRefusal(
    "it preprocesses audio",
    "Preprocess the audio on the host, and pass the result as an input.",
)
_DETECTION = OpcodeRefusal(
    "it processes the regions of a detection network",
    "End the program before this instruction, and process its operands on the host.",
)
_OWN = OpcodeRefusal(
    "it is a custom operator defined by another program",
    "Split the program at this instruction, and compute it on the host.",
)
_LOWERED = "Print the program after lowering for Glow's Interpreter or CPU backend."
_NOT_LOWERED = OpcodeRefusal("Glow's Interpreter has no arithmetic for it", _LOWERED)
_OTHER_BACKEND = OpcodeRefusal(
    "it uses the layout of another backend",
    "Print the program for Glow's Interpreter.",
)
_MEASURING = OpcodeRefusal(
    "it measures a run of Glow",
    "Print the program without profiling, instrumentation and tracing.",
)
_DYNAMIC = OpcodeRefusal(
    "its scales are chosen at run time",
    "Quantize the network with calibration, so that the scales are constant.",
)

_BY_REASON = {
    _TRAINING: """adaptiveavgpoolgrad avgpoolgrad batchedpairwisedotproductgrad convolution3dgrad
        convolutiongrad localresponsenormalizationgrad maxpoolwithargmaxgrad relugrad sigmoidgrad
        softmaxgrad sparselengthssumgrad sparselengthsweightedsumgrad tanhgrad thresholdgrad""",
    _LOSS: """binarycrossentropywithlogits crossentropyloss crossentropylossgrad
        posweightbinarycrossentropywithlogits simplebinarycrossentropywithlogits
        weightbinarycrossentropywithlogits""",
    _SPARSE: """batchedpairwisedotproduct batchedunaryembeddingsbags batchsparsetodense
        boundscheckindices embedding embeddingbag embeddingbagbyterowwiseoffsets
        fillexampleswithindicator fusedrowwisequantizedsparselengthssum
        fusedrowwisequantizedsparselengthsweightedsum intnbitsplitembeddingbags
        intnbitsplitembeddingweightedbags lengthsrangefill lengthssum lengthstoranges
        permutepooledembeddings prunedarraylookup rowwisequantizedsparselengthsweightedsum
        sparselabelsplit sparselengthssum sparselengthsweightedsum sparsetodensemask
        sumwithzeropadding""",
    _AUDIO: "audiospectrogram mfcc",
    _DETECTION: "bboxtransform collectrpnproposals roialign tflitedetectionpostprocess",
    _OWN: "externalfunctioncall tflitecustomoperator",
    _NOT_LOWERED: "concat fusiongroup indexadd indexput lookuptable mean pad",
    _OTHER_BACKEND: "cpuconvdkkc8 oclbatchedreduceadd",
    _MEASURING: "instrument quantizationprofile traceevent",
    _DYNAMIC: "dynamicquantizedfullyconnected dynamicrowwisequantizedfullyconnected",
    OpcodeRefusal(
        "its values are random",
        "Generate the values on the host, and pass them as an input.",
    ): "gaussianfill",
}

REFUSED: dict[str, OpcodeRefusal] = {
    opcode: refusal for refusal, opcodes in _BY_REASON.items() for opcode in opcodes.split()
}
"""All refused opcodes by name."""
