"""Exact minimum of an objective over all tasks: losses, penalties, engines."""
