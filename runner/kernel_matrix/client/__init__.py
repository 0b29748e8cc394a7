"""The client of a service: what it sends and reads, its connection, and rewards made from its answers."""
