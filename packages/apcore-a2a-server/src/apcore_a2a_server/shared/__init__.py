"""What more than one room needs."""
