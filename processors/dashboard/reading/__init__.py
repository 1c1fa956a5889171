"""Reading decisions and snapshots for the dashboard: where it stands, how far it is."""
