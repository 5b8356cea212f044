"""Run a user's code in a sandbox: load projects; constraints, queries, forecasts, backtests."""
