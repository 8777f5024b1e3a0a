-- What each runner made of the files of the projects that it hosts: nf status shows it for all of them.

CREATE TABLE nf_runner_project (
  runner_no       int NOT NULL REFERENCES nf_runner ON DELETE CASCADE,
  project         text NOT NULL,                -- its folder, as long as nf.yaml could not be read
  attempted_digest bytea CHECK (octet_length(attempted_digest) = 32),
  attempted_commit text,
  generation      bigint NOT NULL DEFAULT 0,
  state           text NOT NULL CHECK (state IN ('ok', 'degraded', 'failed', 'pending', 'paused', 'refused', 'behind', 'waiting', 'busy')),
  reason          text NOT NULL DEFAULT '',
  findings        bigint NOT NULL DEFAULT 0,
  at              timestamptz NOT NULL,
  PRIMARY KEY (runner_no, project)
);
