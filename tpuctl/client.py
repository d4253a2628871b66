"""The typed Python client of the head agent's HTTP API; the CLI uses it too."""
