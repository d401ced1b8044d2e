"""Elementary functions as vectors of arithmetic: polynomials within 2 ulp over the whole range."""
