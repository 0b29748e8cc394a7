"""The process that runs a candidate or a baseline and answers the judge. Everything it says is a claim."""
