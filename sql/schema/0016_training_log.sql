-- What trainers work out themselves: floating point operations of the model a second and GPU, in a step.

alter table job_step add column model_flops_per_gpu_second double;

-- A job may declare the precision that it trains in, and leave it to its log what a step computes.
alter table job_model alter column active_parameters drop not null;
