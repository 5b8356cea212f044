"""State over time: past states, forecasts and backtests."""
