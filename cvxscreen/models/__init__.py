"""Front doors by task."""
