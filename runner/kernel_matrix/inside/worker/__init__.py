"""The process that runs a candidate or a baseline and answers the judge. All its answers are claims."""
