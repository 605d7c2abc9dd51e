"""Work on data sets: report; and what wheels add."""
