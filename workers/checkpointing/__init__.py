"""From entries and edits to checkpoints."""
