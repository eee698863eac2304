"""Cases of the second document's rows: graphs of values, and kernels.

Takes: a tier. Gives: cases whose graphs have the document's own ops. A backend that takes core ops alone is given their legal form.
"""
