"""What the user writes: cluster and run specs as frozen models, YAML with line numbers, the accelerator table."""
