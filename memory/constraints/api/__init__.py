"""The API of constraints, forecasts and backtests."""
