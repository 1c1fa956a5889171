"""The dashboard over HTTP: who may ask, what is answered, what is streamed.

Nothing of an event is ever parsed as HTML; every answer is of a model in `answers.py`.
"""
