"""`python -m rollbook.tests.structure` prints the layers and the sizes of the tree as it is, as Markdown."""

from rollbook.tests.structure.page import page

print(page(), end="")
