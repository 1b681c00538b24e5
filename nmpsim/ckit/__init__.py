"""The C kit: header, start-up code and linker script of C programs for the device."""
