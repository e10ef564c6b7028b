DROP VIEW consumer_lag_v;
