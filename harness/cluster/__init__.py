"""Runs over several hosts: who is which node, how the hosts speak, jobs on a cluster."""
