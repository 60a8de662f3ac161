"""What is said of a database that can't be used."""

import asyncpg

from apcore_a2a_server.store.errors import UnavailableError

REFUSALS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError)
"""What comes of a database that can't be used, or of an address that can't be read."""


def refusal(error: Exception) -> UnavailableError:
    """What to raise instead of one of these; it does not hold the password."""
    if isinstance(error, UnavailableError):
        return error
    if isinstance(error, ValueError) and not isinstance(error, asyncpg.InterfaceError):
        # it tells a part of the address, and where that ends wrongly, of the password
        return UnavailableError("The database's address can't be read")
    told = str(error) or "it does not answer in time"
    return UnavailableError(f"The database can't be used: {told}")
