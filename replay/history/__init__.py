"""Reading the log: offset ranges, the sources that records come from, and decisions by the record they decide.

`source.py` is the one interface; whoever works on a history knows neither Kafka nor files. `restore.py` alone writes:
into new topics, what files hold.
"""
