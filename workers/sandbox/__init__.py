"""Run users' code in sandboxes: the entry point (`runner`), the protocol, and the two runners."""
