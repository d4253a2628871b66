"""One module a verb: parse, call one function, render. Nothing heavy is imported at the top of these modules."""
