"""The staff's query console."""
