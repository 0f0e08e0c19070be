"""From job specs to DAGs: catalog, factory, task group, timetable and trigger form."""
