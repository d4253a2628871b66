"""Wanted slices -> existing slices, in one pass: observe, plan (pure), apply."""
