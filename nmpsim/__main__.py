"""``python -m nmpsim`` is the command ``nmpsim``."""

from nmpsim.cli import main

if __name__ == "__main__":
    main()
