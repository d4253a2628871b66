"""A command each so many minutes: in a user's crontab or a systemd timer, with a log that stays small."""
