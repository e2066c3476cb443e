"""What a room leaves a house as: one module a format, each a pure function from a `Case`.

Nothing here waits, asks the network or knows of a server; `server.exporting` and the command line
gather the case, and `server.export.worker` runs the functions in a process of their own, because
some of them read strangers' files.
"""
