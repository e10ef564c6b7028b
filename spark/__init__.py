"""The analytics side: Spark reads the same tables over JDBC, ranges of ``c_offset`` at a time."""
