"""The commands of `uops`, one module each. A command imports what it needs when it runs, so that `uops --help` answers at once."""
