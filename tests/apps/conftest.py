"""Apps run against a model server on loopback, with the account closed after each."""

from __future__ import annotations

from tests.support.account import account
from tests.support.loopback import model_server

__all__ = ["account", "model_server"]
