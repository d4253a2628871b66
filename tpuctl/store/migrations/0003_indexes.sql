-- What only grows is read by index: past incarnations by slot, events by whom they concern, by kind and by time.
DROP INDEX incarnations_by_phase;
CREATE INDEX incarnations_existing ON incarnations (created_at, pool, slot, n) WHERE phase <> 'GONE';
CREATE INDEX incarnations_gone ON incarnations (pool, slot, created_at DESC, n DESC) WHERE phase = 'GONE';
CREATE INDEX events_by_subject ON events (subject, id);
CREATE INDEX events_by_kind ON events (kind, id);
CREATE INDEX events_by_time ON events (at);
