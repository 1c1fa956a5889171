"""The dashboard over HTTP: who may ask, what is answered, what is streamed."""
