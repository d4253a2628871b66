"""`tpuctl runs`: all runs, or one with its attempts, verdicts and their evidence."""

from __future__ import annotations

from tpuctl.base.units import Instant
from tpuctl.report.status import runs_table
from tpuctl.report.style import PLAIN, Style, wrap
from tpuctl.report.table import Row, render_table
from tpuctl.report.values import Document, age, clock_time, names, rows, span

VERDICT_COLOUR = {
    "succeeded": "green",
    "failed": "red",
    "preempted": "yellow",
    "host-fault": "yellow",
    "lost-contact": "yellow",
    "cancelled": "dim",
}


def render_runs(document: Document, now: Instant, *, style: Style = PLAIN) -> str:
    """`GET /v1/runs`, for people, without a trailing newline."""
    runs = rows(document, "runs")
    return runs_table(runs, now, style) if runs else "no runs; 'tpuctl submit RUN.yaml' queues one"


def render_run(document: Document, now: Instant, *, style: Style = PLAIN) -> str:
    """`GET /v1/runs/<name>`, for people, without a trailing newline."""
    parts = ["\n".join(_about(document, now, style))]
    attempts = rows(document, "attempts")
    if attempts:  # START: from the order to the last rank's start
        lines = [_attempt(row, now) for row in attempts]
        header = ("ATTEMPT", "VERDICT", "ORDERED", "START", "RAN", "SLICES")
        parts.append(render_table(header, lines, style, shrink=(5,)))
    else:
        parts.append("no attempt yet")
    return "\n\n".join(parts)


def _about(document: Document, now: Instant, style: Style) -> list[str]:
    state = str(document.get("state") or "?")
    since = age(document.get("since"), now)
    head = f"{document.get('name') or '?'} ({document.get('id') or '?'}): {state}{f' since {since}' if since else ''}"
    if document.get("exit_code") is not None:
        head += f", exit status {document['exit_code']}"
    lines = wrap(head, style, indent="  ", first="")
    submitted = clock_time(document.get("submitted_at"))
    told = [
        f"submitted {submitted} UTC" if submitted else "",
        f"by {document['user']}" if document.get("user") else "",
        f"priority {document['priority']}" if document.get("priority") else "",
    ]
    if any(told):
        lines += wrap(" ".join(word for word in told if word), style, indent="  ")
    budget = [
        f"{document[key]} {word}"
        for key, word in (("failures", "failed"), ("preemptions", "preempted"), ("losses", "lost"))
        if document.get(key)
    ]
    if budget:
        lines += wrap(f"attempts that did not end well: {', '.join(budget)}", style, indent="  ")
    if document.get("reason"):
        lines += wrap(str(document["reason"]), style, indent="  ")
    return lines


def _attempt(row: Document, now: Instant) -> Row:
    verdict = str(row.get("verdict") or "")
    ordered, started, ended = row.get("ordered_at"), row.get("started_at"), row.get("ended_at")
    ran = "never" if started is None else age(started, now) if ended is None else span(started, ended)
    open_word = "stopping" if row.get("stopping_at") else "running" if started else "starting"
    stop = f"stopping: {row['stop_reason']}" if row.get("stop_reason") and not verdict else ""
    return Row(
        (
            str(row.get("n") or row.get("attempt") or "?"),
            verdict or open_word,
            clock_time(ordered),
            span(ordered, started),
            ran,
            names(row.get("slices")),
        ),
        str(row.get("evidence") or stop),
        ("", VERDICT_COLOUR.get(verdict, ""), "", "", "", ""),
    )
