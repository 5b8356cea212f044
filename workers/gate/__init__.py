"""The checks that a candidate project must pass, and the verdict on it."""
