"""The staff's pages about one user."""
