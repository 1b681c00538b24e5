"""Graph of tensors and operators that all model formats share, and its lowering to LIR."""
