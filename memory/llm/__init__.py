"""Language models: their settings, the record of their calls, turns and track records."""
