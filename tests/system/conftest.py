from tests.airflow_fixtures import airflow_database, dags_folder

__all__ = ["airflow_database", "dags_folder"]
