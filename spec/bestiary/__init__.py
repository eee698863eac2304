"""The second document: its rows, its tables, and `legalize`, which turns its ops into core ones."""
