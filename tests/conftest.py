"""What any test may use: a model server on loopback, and an account that must close."""

from __future__ import annotations

from tests.support.account import account
from tests.support.loopback import model_server

__all__ = ["account", "model_server"]
