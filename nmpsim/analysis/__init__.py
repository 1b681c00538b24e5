"""What can be said about a program, and about a run of it, beyond the run itself."""
