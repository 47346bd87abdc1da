"""One job, several objectives: the plans of which no other is better in all of them."""
