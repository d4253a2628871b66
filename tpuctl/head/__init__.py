"""The head VM as seen from outside: model, observe, plan (pure), apply, reach."""
