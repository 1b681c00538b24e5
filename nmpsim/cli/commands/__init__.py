"""One module a command; each has its click command as ``command`` and imports little else."""
