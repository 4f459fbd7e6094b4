-- Below how much core activity a busy card computes nothing, for vendors whose own cores say it.
alter table vendor_rule add column still_core_below_ratio double;
