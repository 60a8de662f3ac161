"""What the server knows of the clients that wait for it: whether they are there, and how many."""
