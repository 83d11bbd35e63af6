from tests.server.conftest import fraction

__all__ = ["fraction"]
