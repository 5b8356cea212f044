"""Date and time formats for English."""
