"""`tpuctl status`: what exists, what runs, what waits and why."""

from __future__ import annotations

from tpuctl.base.units import Instant, show_duration
from tpuctl.head.silence import remembered_age, silence_of
from tpuctl.report.style import PLAIN, Style, wrap
from tpuctl.report.table import Row, render_table
from tpuctl.report.values import Document, age, clock_time, count, names, part, rows, when

PHASE_COLOUR = {"READY": "green", "SUSPECT": "red", "LOST": "red", "DRAINING": "yellow", "NONE": "dim", "GONE": "dim"}
RUN_COLOUR = {"RUNNING": "green", "SUCCEEDED": "green", "FAILED": "red", "CANCELLED": "dim", "STOPPING": "yellow"}
_PASS_WORDS = {
    0: "ok",
    1: "failed",
    2: "the spec was refused",
    3: "partly failed or unknown, the rest was done",
    4: "busy",
}
_FINE_RUNS = ("RUNNING", "SUCCEEDED")


def render_status(document: Document, now: Instant, stale_age_s: float | None = None, *, style: Style = PLAIN) -> str:
    """For people, without a trailing newline. `stale_age_s`: the head did not answer, and this is so old."""
    parts = ["\n".join(_head(document, now, stale_age_s, style))]
    slices = rows(document, "slices")
    parts.append(_slices(slices, now, style) if slices else _no_slices(document))
    runs = rows(document, "runs")
    parts.append(runs_table(runs, now, style) if runs else "no runs; 'tpuctl submit RUN.yaml' queues one")
    return "\n\n".join(parts)


def _head(document: Document, now: Instant, stale_age_s: float | None, style: Style) -> list[str]:
    lines = list[str]()
    if stale_age_s is not None:
        text = f"the head did not answer; this is what it said {show_duration(max(0.0, round(stale_age_s)))} ago"
        lines += [style.paint(line, "yellow") for line in wrap(text, style)]
    head = part(document, "head")
    words = [f"cluster {document.get('cluster') or '?'}"]
    state = str(head.get("state") or "unknown")
    words.append(f"head {state}{' at ' + str(head['address']) if head.get('address') else ''}")
    if head.get("ray") == "unknown":
        words.append("Ray unknown")
    if document.get("epoch"):
        words.append(f"epoch {document['epoch']}")
    lines += wrap("; ".join(words), style, indent="  ", first="")
    lines.append(_last_pass(part(document, "last_pass"), now))
    if silence := silence_of(remembered_age(document, now)):
        lines += [style.paint(line, "red") for line in wrap(silence, style, indent="  ")]
    if document.get("wanted") is False:
        lines.append("nothing is wanted: the cluster is being taken down")
    summary = part(document, "last_pass").get("summary")
    if summary and part(document, "last_pass").get("exit"):
        lines += wrap(str(summary), style, indent="  ")
    for grant in rows(document, "grant"):
        lines += wrap(_grant(grant, now), style, indent="  ", first="")
    return lines


def _last_pass(last: Document, now: Instant) -> str:
    if not last:
        return "no pass yet"
    code = last.get("exit")
    word = _PASS_WORDS.get(code, f"exit {code}") if isinstance(code, int) else "unknown"
    return f"last pass {age(last.get('at'), now)} ago: {word}"


def _grant(grant: Document, now: Instant) -> str:
    place = "/".join(str(grant.get(key) or "?") for key in ("zone", "generation", "tier"))
    used = f"{grant['used']} of " if grant.get("used") is not None else ""
    text = f"grant {place}: {used}{grant.get('chips', '?')} chips"
    until = when(grant.get("until"))
    if until is None:
        return text
    if until <= now:
        return f"{text}; ended {clock_time(until.plus(-1).iso())[:10]}"
    # `until` is the end of the last day; people think of that day.
    return f"{text}, until {clock_time(until.plus(-1).iso())[:10]}"


def _slices(slices: tuple[Document, ...], now: Instant, style: Style) -> str:
    lines = [_slice(row, now) for row in slices]
    return render_table(("SLICE", "TYPE", "ZONE", "HOSTS", "PHASE", "SINCE", "RUN"), lines, style, shrink=(6, 2, 0, 1))


def _slice(row: Document, now: Instant) -> Row:
    phase = str(row.get("phase") or "?")
    hosts = part(row, "hosts")
    note = str(row.get("reason") or "") if phase != "READY" or row.get("unseen_since") else ""
    if row.get("unseen_since"):
        unseen = f"not seen for {age(row['unseen_since'], now)}"
        note = f"{unseen}: {note}" if note else unseen
    return Row(
        (
            str(row.get("name") or "?"),
            str(row.get("accelerator") or ""),
            str(row.get("zone") or ""),
            f"{hosts.get('joined', '?')}/{hosts.get('expected', '?')}",
            phase,
            age(row.get("since"), now) or "-",
            str(row.get("run") or "-"),
        ),
        note,
        ("", "", "", "", PHASE_COLOUR.get(phase, ""), "", ""),
    )


def _no_slices(document: Document) -> str:
    if document.get("wanted") is False:
        return "no slices are left"
    return "no slices; 'tpuctl up' sends the spec and asks for them"


def runs_table(runs: tuple[Document, ...], now: Instant, style: Style) -> str:
    lines = []
    for row in runs:
        state = str(row.get("state") or "?")
        lines.append(
            Row(
                (
                    str(row.get("name") or "?"),
                    state,
                    count(row.get("attempt")),
                    age(row.get("since"), now) or "-",
                    count(row.get("failures")),
                    count(row.get("preemptions")),
                    str(row.get("losses") or ""),
                    names(row.get("slices")) or "-",
                ),
                "" if state in _FINE_RUNS else str(row.get("reason") or ""),
                ("", RUN_COLOUR.get(state, ""), "", "", "", "", "", ""),
            )
        )
    header = ("RUN", "STATE", "ATTEMPT", "SINCE", "FAILED", "PREEMPTED", "LOST", "SLICES")
    return render_table(header, lines, style, shrink=(7, 0))
