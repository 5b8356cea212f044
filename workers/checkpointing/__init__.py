"""Turn entries and edits into checkpoints."""
