"""One graph of tensors for all formats, and what makes LIR of it."""
