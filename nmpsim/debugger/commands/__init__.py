"""Commands of the debugger: for scripts, lines and screens."""
