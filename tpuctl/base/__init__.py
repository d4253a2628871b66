"""Units, ids, errors, clock, chance, files and processes: what every room uses and none of which knows a TPU."""
