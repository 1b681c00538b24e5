"""Reference runtimes, such as LiteRT, which run a model file and keep every tensor.

Each module of a runtime runs the files of one format, in a child process; ``live`` runs a model on
the inputs of a program. A runtime is imported only when a model is run.
"""

from nmpsim.references.live import LiveReference, ReferenceRun, open_reference
from nmpsim.references.runtime import ProcessLimits

__all__ = ["LiveReference", "ProcessLimits", "ReferenceRun", "open_reference"]
