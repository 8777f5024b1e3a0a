-- The order of commits (P11).

CREATE TABLE nf_commit (                        -- a commit marked superseded is refused, history known or not
  project         text NOT NULL REFERENCES nf_project,
  commit_id       text NOT NULL,                -- or the digest of the source where there are no commits
  generation      bigint NOT NULL CHECK (generation > 0),      -- in force when it was applied first
  committed_at    timestamptz,
  parents         text[],
  digest          bytea CHECK (octet_length(digest) = 32),     -- of its set
  superseded_by   bigint,                       -- generation that replaced it; --rewind clears it
  PRIMARY KEY (project, commit_id),
  CHECK (superseded_by >= generation)
);
COMMENT ON INDEX nf_commit_pkey IS 'S14: seen and superseded?';
CREATE UNIQUE INDEX nf_commit_in_force ON nf_commit (project) WHERE superseded_by IS NULL;
COMMENT ON INDEX nf_commit_in_force IS 'S14: the one that is in force';

INSERT INTO nf_commit (project, commit_id, generation, digest)
SELECT project, commit_id, generation, digest FROM nf_project WHERE commit_id IS NOT NULL AND generation > 0;
