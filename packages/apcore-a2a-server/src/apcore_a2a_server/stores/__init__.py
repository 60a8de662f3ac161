"""Where tasks are kept."""
