"""The page of `uops view`: `columns` turns a trace into lines and links; `page` renders them as one HTML file."""
