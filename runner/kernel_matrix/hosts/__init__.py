"""The host: its identity, its inventory, tokens of its processes, and the doctor."""
