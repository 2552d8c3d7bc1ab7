"""A path over C as one compiled loop, for problems of few coordinates."""
