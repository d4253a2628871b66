-- What pools over several places, with windows and a changing number of slices, need to know of each incarnation.
ALTER TABLE incarnations ADD COLUMN tier TEXT NOT NULL DEFAULT 'spot';
ALTER TABLE incarnations ADD COLUMN not_before REAL;
ALTER TABLE incarnations ADD COLUMN expires_at REAL;
ALTER TABLE incarnations ADD COLUMN idle_since REAL;
ALTER TABLE incarnations ADD COLUMN ended_at REAL;
ALTER TABLE incarnations ADD COLUMN was_lost INTEGER NOT NULL DEFAULT 0;
