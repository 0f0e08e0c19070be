"""Files and tables that others wrote, read in every way and compared with what others read in them."""
