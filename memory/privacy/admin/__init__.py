"""The staff's screens of redactions and erasures."""
