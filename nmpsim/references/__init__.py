"""Reference runtimes, such as LiteRT, which run a model file and keep every tensor.

Each module of a runtime runs the files of one format; ``live`` runs a model on the inputs of a
program. A runtime is imported only when a model is run.
"""

from nmpsim.references.live import LiveReference, ReferenceRun, open_reference

__all__ = ["LiveReference", "ReferenceRun", "open_reference"]
