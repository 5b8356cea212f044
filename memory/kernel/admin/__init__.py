"""The staff's screens: what all of them share, and those of tenants, pauses and hosts."""
