"""What all slices rest on: tenants, people, work, HTTP, settings; it knows no slice."""
