"""Users' states over time: past states, forecasts and backtests."""
