"""The conventions under which frameworks compute what goes by one name, as data, and the search for the one that made
a recorded number."""
