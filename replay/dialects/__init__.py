"""The conventions under which frameworks compute what goes by one name, as data.

A convention names library and version, and has recorded cases of that library behind it (tests/data/goldens).
"""
