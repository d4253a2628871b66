"""The tables of docs/spec.md, made from the key tables. To renew: `python -m tpuctl.spec.reference docs/spec.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tpuctl.base.files import write_atomic
from tpuctl.spec.cluster_keys import CLUSTER
from tpuctl.spec.keys import Block, Key
from tpuctl.spec.run_keys import RUN

_SECTIONS = {"cluster keys": CLUSTER, "run keys": RUN}


def renewed(page: str) -> str:
    """The page with the tables between its marks made anew. Raises ValueError when a mark is missing."""
    for name, block in _SECTIONS.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, found, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found or not found_end:
            raise ValueError(f"the marks of {name!r} are missing")
        page = f"{before}{begin}{_table(block)}{end}{after}"
    return page


def _table(block: Block) -> str:
    rows = ["| key | default | what |", "|---|---|---|", *_rows(block, "")]
    later = list(_later(block, ""))
    return "\n".join([*rows, "", f"Not there yet, and refused by name: {', '.join(later)}.", ""])


def _rows(block: Block, where: str) -> Iterator[str]:
    for key in block.keys:
        if key.later and not key.already:
            continue
        default = "required" if key.required else f"`{key.default}`" if key.default else ""
        yield f"| `{where}{key.name}` | {default} | {_about(key)} |"
        if key.block is not None:
            yield from _rows(key.block, f"{where}{key.name}.")
        if key.each is not None:
            yield from _rows(key.each, f"{where}{key.name}[].")


def _about(key: Key) -> str:
    allowed = key.schema.get("enum")
    words = f" One of {', '.join(f'`{word}`' for word in allowed)}." if allowed and len(allowed) > 1 else ""
    return f"{key.about}{words}".replace("|", "\\|")


def _later(block: Block, where: str) -> Iterator[str]:
    for key in block.keys:
        if key.later:
            other = f" other than {' or '.join(f'`{word}`' for word in key.already)}" if key.already else ""
            yield f"`{where}{key.name}`{other}"
        for inner, mark in ((key.block, ""), (key.each, "[]")):
            if inner is not None:
                yield from _later(inner, f"{where}{key.name}{mark}.")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_atomic(target, renewed(target.read_text(encoding="utf-8")).encode())
