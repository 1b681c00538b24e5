"""Whole layers: what the tiles of a recorded layer compute together, proved and done at once."""
