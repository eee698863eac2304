"""Claims about a launch as a whole: its memory plan, the private memory of its kernels, and its devices."""
