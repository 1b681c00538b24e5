"""The device: its state, two engines that run programs on it, and a run from inputs to report."""
