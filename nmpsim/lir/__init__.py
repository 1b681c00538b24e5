"""Glow's low-level IR: parser, printer, verifier and constants.

Read ``nodes`` (the data) and ``opcodes`` (every instruction) first. The usual way in::

    module = parse_file(path)
    module, warnings = attach_constants(module, weights, find_tensors_file(path))
    verify(module)

Each name is imported from the module that defines it: who needs only the data waits for no parser.
"""
