"""The page of `uops view`: `columns` turns a trace into lines and links, `page` spells them as one HTML file."""
