"""What the search does often enough to be compiled: the order of instructions, and their time."""
