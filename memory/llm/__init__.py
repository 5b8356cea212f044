"""Language models: their settings, calls, budgets, turns and track records."""
