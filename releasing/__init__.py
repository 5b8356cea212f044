"""What a release is checked with and made by: docs/releasing.md."""
