"""What all parts of the API share: authentication, errors, pages, idempotent writes."""
