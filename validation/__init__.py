"""Evidence: results of the library, held against published values and measurements of others."""
