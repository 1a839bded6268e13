"""The only code that runs beside a candidate. It holds nothing of value: no reference, no expected output, no seed of
a draw, no verdict. What it answers is a claim."""
