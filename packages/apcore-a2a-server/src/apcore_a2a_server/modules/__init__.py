"""apcore's side: what the server knows of modules, and its places in the executor's pipeline."""
