"""From data to something to look at: text for the terminal, plain data for JSON."""
