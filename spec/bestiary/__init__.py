"""The second document, the bestiary: its rows, its tables, and `legalize`, which lowers its ops to core ops."""
