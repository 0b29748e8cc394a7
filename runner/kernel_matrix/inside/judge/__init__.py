"""The trusted process of a session: inputs, references, checks, the clock, the report."""
