"""One module per command; each has `command`, a click command."""
