"""Our documents: read with errors that name file, line and field; written so that they read back as the same value.

Nothing heavy is imported here: the YAML reader and the validation library come in when a document is read.
"""

from ignite_scheduler.formats.cluster import cluster_document, load_cluster, parse_cluster
from ignite_scheduler.formats.job import job_document, load_job, parse_job
from ignite_scheduler.formats.profile import load_profile, parse_profile, profile_document

__all__ = [
    "cluster_document",
    "job_document",
    "load_cluster",
    "load_job",
    "load_profile",
    "parse_cluster",
    "parse_job",
    "parse_profile",
    "profile_document",
]
