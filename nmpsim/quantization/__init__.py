"""Float programs to quantized ones, with the parameters that Glow would choose."""
