"""Settings, embedded broker, topics, the `rollbook` command and the demo.

`settings.py` is the leaf that every part may import; everything else here may import all parts.
"""
