"""The host: its identity, what it has, who started what on it, and what it lacks."""
