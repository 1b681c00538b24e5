"""One module for each format, which defines ``TARGET``."""
