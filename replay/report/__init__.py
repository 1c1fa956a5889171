"""What replay found, for people and for programs.

The JSON only grows; whatever a bundle names is data, never markup.
"""
