"""The device as a frozen value, read from a TOML file and checked once."""
