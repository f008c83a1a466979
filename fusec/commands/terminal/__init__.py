"""The command line of all commands: flags, completion, diagnostics, progress."""
