"""`python -m rollbook.infra.reference` writes docs/reference/."""

from rollbook.infra.reference.pages import write_all

for path in write_all():
    print(path.name)
