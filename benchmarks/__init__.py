"""Measurements of Skewless against its peers, and the workloads they are measured on."""
