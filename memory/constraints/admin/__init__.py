"""The staff's screens of constraints, backtests and forecasts."""
