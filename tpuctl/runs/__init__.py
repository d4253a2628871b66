"""Wanted runs -> attempts: queue, planner (pure), supervisor, launcher, watchdog, verdict (pure), logs."""
