"""Code that runs in the converter's container: uploaded documents become text, page by page."""
