"""The panes of the screen, one a file."""
