"""C kernels: TinyCC in this process compiles fastest; gcc and clang, where installed, give the fastest code."""
