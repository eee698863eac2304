"""`python -m uops` is the command `uops`."""

from uops.cli import main

if __name__ == "__main__":
    main()
