"""Everything that is drawn: figures of runs, studies and behaviour data, pictures of families and what they paint."""
