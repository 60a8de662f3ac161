"""Tasks that wait for an answer: what is asked, what answers mean, how long there is."""
