"""Nothing: the package above has the names for users."""
