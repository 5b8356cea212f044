"""Models of constraints, forecasts and backtests."""
