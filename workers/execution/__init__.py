"""Code of a user in a sandbox: load a project, run constraints, queries, forecasts, backtests."""
