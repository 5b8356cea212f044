"""Load users' projects into sandboxes; run constraints, queries, forecasts and backtests there."""
