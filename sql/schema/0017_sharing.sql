-- Whether a source says which share of its card a pod was given, or saw only that it is there.

alter table holding add column is_stated boolean default false;
alter table holding alter column is_stated set not null;
