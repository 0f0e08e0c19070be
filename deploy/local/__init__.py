"""Airflow on one machine: started, followed and stopped by the Makefile's commands."""
