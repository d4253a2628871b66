"""The service on the head: HTTP API, dispatch loop, passes on demand, the view of Ray."""
