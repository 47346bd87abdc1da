"""Our documents: read with errors that name file, line and field; written so that they read back as the same value.

Nothing heavy is imported here: the YAML reader, the validation library and the cost model's values come in when a
document is read.
"""

from ignite_scheduler.formats.calibration import (
    calibration_document,
    calibration_name,
    load_calibration,
    parse_calibration,
)
from ignite_scheduler.formats.catalogue import catalogue
from ignite_scheduler.formats.chrome_trace import chrome_trace
from ignite_scheduler.formats.cluster import cluster_document, load_cluster, parse_cluster
from ignite_scheduler.formats.comparison import comparison_document, difference
from ignite_scheduler.formats.files import json_text, write_json, write_text, write_yaml, yaml_text
from ignite_scheduler.formats.job import job_document, load_job, parse_job
from ignite_scheduler.formats.observation import load_observation, observation_document, parse_observation
from ignite_scheduler.formats.plan import (
    answer_document,
    infeasible_document,
    load_answer,
    load_plan,
    parse_answer,
    plan_document,
)
from ignite_scheduler.formats.profile import load_profile, parse_profile, profile_document
from ignite_scheduler.formats.schemas import SCHEMA_NAMES, schema
from ignite_scheduler.formats.timeline import (
    StepTimes,
    TimelineRecord,
    load_timeline,
    parse_timeline,
    planned_document,
)
from ignite_scheduler.formats.workload import TableJob, WorkloadJob, load_workload, workload_text

__all__ = [
    "SCHEMA_NAMES",
    "StepTimes",
    "TableJob",
    "TimelineRecord",
    "WorkloadJob",
    "answer_document",
    "calibration_document",
    "calibration_name",
    "catalogue",
    "chrome_trace",
    "cluster_document",
    "comparison_document",
    "difference",
    "infeasible_document",
    "job_document",
    "json_text",
    "load_answer",
    "load_calibration",
    "load_cluster",
    "load_job",
    "load_observation",
    "load_plan",
    "load_profile",
    "load_timeline",
    "load_workload",
    "observation_document",
    "parse_answer",
    "parse_calibration",
    "parse_cluster",
    "parse_job",
    "parse_observation",
    "parse_profile",
    "parse_timeline",
    "plan_document",
    "planned_document",
    "profile_document",
    "schema",
    "workload_text",
    "write_json",
    "write_text",
    "write_yaml",
    "yaml_text",
]
