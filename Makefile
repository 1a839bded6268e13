# `make check` is the quick part of CI (.ci/run), in the environment that is active.
.PHONY: check lint types imports tests format

check: lint types imports tests

lint:
	ruff check .
	ruff format --check .

types:
	pyright

imports:
	lint-imports

tests:
	pytest

format:
	ruff check --fix .
	ruff format .
