"""What people are shown: status, why, runs, events, the plan.

Pure: a document (JSON as docs/architecture.md has it), a time and a style in, text out. Nothing of the other rooms is
imported but base, so that `tpuctl status` starts at once. Tables are made here and not by rich: importing rich's tables
alone costs more time than the whole of `status` may.
"""
