from tests.support.loopback import model_server

__all__ = ["model_server"]
