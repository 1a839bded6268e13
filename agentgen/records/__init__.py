"""Pure data: frozen pydantic records, no torch, no behaviour beyond checking themselves. One file per noun."""
