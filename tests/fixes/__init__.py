"""Every fix that a refusal prints, followed to the letter.

sentences   what a fix says to do: the alternatives of a sentence, each a list of steps
follow      the steps, done to a pod
operators   those that an operator does to the cluster
corpus      pods that are refused, of the golden cases and generated ones
test_fixes  a pod that was changed as its fix says is not refused for that again
"""
