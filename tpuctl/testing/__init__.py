"""Test doubles that users may use too: builders, a fake clock, the emulator core behind the real clients."""
