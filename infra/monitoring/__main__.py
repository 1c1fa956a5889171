"""`python -m rollbook.infra.monitoring` writes the files anew; it needs grafana-foundation-sdk."""

from rollbook.infra.monitoring.files import MADE

for one in MADE:
    one.file.path.write_text(one.make(), encoding="utf-8")
    print(one.file.value)
