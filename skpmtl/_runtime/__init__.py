"""What everything stands on: compiled loops, registers, threads, other versions of libraries."""
