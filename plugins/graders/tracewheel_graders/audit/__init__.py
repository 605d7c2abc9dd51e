"""The audit of graders: right and wrong episodes whose worth is known, and what each verifier makes of them."""
