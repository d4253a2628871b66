-- Times are REAL seconds since 1970 UTC. Every row is written by its columns' names.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
-- meta: cluster, epoch, wanted (up | down), down_options (JSON)

CREATE TABLE spec (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    document TEXT NOT NULL,           -- tpuctl.spec.cluster.ClusterSpec as JSON
    digest TEXT NOT NULL,
    at REAL NOT NULL
) STRICT;

CREATE TABLE incarnations (
    name TEXT PRIMARY KEY,
    pool TEXT NOT NULL,
    slot INTEGER NOT NULL,
    epoch TEXT NOT NULL,
    n INTEGER NOT NULL,
    zone TEXT NOT NULL,
    accelerator TEXT NOT NULL,
    chips INTEGER NOT NULL,
    hosts INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    intent TEXT NOT NULL,
    phase TEXT NOT NULL,
    since REAL NOT NULL,
    created_at REAL NOT NULL,
    spec_digest TEXT NOT NULL,
    reason TEXT NOT NULL,
    cloud_state TEXT NOT NULL,
    node_state TEXT NOT NULL,
    joined INTEGER NOT NULL,
    node_seen INTEGER NOT NULL,
    active_at REAL,
    ready_at REAL,
    unseen_since REAL,
    suspect_since REAL,
    suspect_passes INTEGER NOT NULL,
    absent_passes INTEGER NOT NULL,
    delete_request_id TEXT NOT NULL,
    delete_reason TEXT NOT NULL,
    error_kind TEXT NOT NULL,
    error_text TEXT NOT NULL,
    UNIQUE (pool, slot, epoch, n)
) STRICT;
CREATE INDEX incarnations_by_phase ON incarnations (phase);

CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    spec_json TEXT NOT NULL,
    user TEXT NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL,
    since REAL NOT NULL,
    submitted_at REAL NOT NULL,
    reason TEXT NOT NULL,
    bundle TEXT NOT NULL,
    failures INTEGER NOT NULL,
    preemptions INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    activation INTEGER NOT NULL,
    not_before REAL,
    cancel_asked INTEGER NOT NULL,
    exit_code INTEGER,
    ended_at REAL
) STRICT;
CREATE INDEX runs_by_state ON runs (state);
-- A name may be used again once the former run of that name is over.
CREATE UNIQUE INDEX runs_living_name ON runs (name) WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED');

CREATE TABLE attempts (
    run_id TEXT NOT NULL REFERENCES runs (id),
    n INTEGER NOT NULL,
    epoch TEXT NOT NULL,
    activation INTEGER NOT NULL,
    slices TEXT NOT NULL,             -- JSON: [[slice, incarnation], …] in rank order
    ordered_at REAL NOT NULL,
    started_at REAL,
    stopping_at REAL,
    stop_reason TEXT NOT NULL,
    ended_at REAL,
    verdict TEXT,
    evidence TEXT NOT NULL,
    PRIMARY KEY (run_id, n)
) STRICT;

CREATE TABLE leases (
    slice TEXT PRIMARY KEY,           -- at most one a slice: the schema holds what the planner promises
    incarnation TEXT NOT NULL,
    run_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    since REAL NOT NULL
) STRICT;

CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;

CREATE TABLE zone_holds (
    zone TEXT NOT NULL,
    accelerator TEXT NOT NULL,
    kind TEXT NOT NULL,
    until REAL NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (zone, accelerator, kind)
) STRICT;

CREATE TABLE passes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    started_at REAL NOT NULL,
    ended_at REAL NOT NULL,
    exit_code INTEGER NOT NULL,
    summary TEXT NOT NULL
) STRICT;
