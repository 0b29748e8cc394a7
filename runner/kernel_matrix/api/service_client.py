"""Have candidates judged by a service that runs elsewhere."""

from __future__ import annotations

from kernel_matrix.client.exchanges import Evaluation
from kernel_matrix.client.http_clients import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "Evaluation"]
