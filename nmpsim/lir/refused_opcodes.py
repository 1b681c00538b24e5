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
class Refusal:
    """Reason for refusing an opcode, and a hint for the user."""

    reason: str
    hint: str


_INFERENCE = "compile the network for inference: Glow then prints no such instruction"
_TRAINING = Refusal("it is part of training", _INFERENCE)
_LOSS = Refusal("it is a loss function, a part of training", _INFERENCE)
_SPARSE = Refusal(
    "it works on embedding tables or sparse lists, which this simulator has no memory for",
    "look the rows up before, and make the dense result an input of the program",
)
_AUDIO = Refusal(
    "it prepares sound, before the network",
    "prepare the data before, and make the result an input of the program",
)
_DETECTION = Refusal(
    "it is an operation on regions of detection networks",
    "end the program before it: its operands become outputs; do the rest with them afterwards",
)
_OWN = Refusal(
    "only the program that brought it knows what it does",
    "split the program there: its operands become outputs, its result an input",
)
_LOWERED = "print the program after lowering for Glow's Interpreter or CPU backend"
_NOT_LOWERED = Refusal("Glow's Interpreter has no arithmetic for it", _LOWERED)
_OTHER_BACKEND = Refusal(
    "it is an instruction of one backend, with a layout of its own",
    "print the program for Glow's Interpreter",
)
_MEASURING = Refusal(
    "it measures Glow's own run",
    "print the program without profiling, instrumentation and tracing",
)
_DYNAMIC = Refusal(
    "its scales are chosen while it runs",
    "quantize the network with a calibration: fullyconnected has constant scales",
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
    Refusal(
        "its values are random",
        "draw the values before, and make them an input of the program",
    ): "gaussianfill",
}

REFUSED: dict[str, Refusal] = {
    opcode: refusal for refusal, opcodes in _BY_REASON.items() for opcode in opcodes.split()
}
"""All refused opcodes by name."""
