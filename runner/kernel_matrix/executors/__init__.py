"""Who runs which cells where. ``local`` runs them on this host."""
