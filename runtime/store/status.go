package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"nf/schema"
)

// Fleet is what the whole fleet has open: figures of the database, not of one process.
type Fleet struct {
	Marks         int64   // facts that no evaluation has seen, those of paused executions left out
	MarkOldest    float64 // seconds that the oldest due one has waited
	Ready         int64   // attempts that wait in a queue
	Delayed       int64   // attempts in back-off, start delay, between polls
	Leased        int64
	TimersOverdue int64 // by more than a second
	Running       int64 // open executions
	Paused        int64
	RunnersAlive  int64
}

// Fleet reads the figures of the fleet. Exact, so it costs in proportion to what is open: ask at most once a second.
func (s *Store) Fleet(ctx context.Context) (Fleet, error) {
	var f Fleet
	err := s.InTx(ctx, API, "fleet", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "fleet", "")
		if err != nil {
			return err
		}
		f, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Fleet, error) {
			var f Fleet
			err := row.Scan(&f.Marks, &f.MarkOldest, &f.Ready, &f.Delayed, &f.Leased, &f.TimersOverdue, &f.Running, &f.Paused, &f.RunnersAlive)
			return f, err
		})
		return err
	})
	return f, err
}

// SemaphoreState is a semaphore with what is held of it.
type SemaphoreState struct {
	Namespace string
	Name      string
	Permits   int64
	Held      int64
}

// Semaphores gives the semaphores in force of a namespace (0 = of all), by name.
func (s *Store) Semaphores(ctx context.Context, ns int32) ([]SemaphoreState, error) {
	var all []SemaphoreState
	err := s.InTx(ctx, API, "semaphores", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "fleet_semaphores", "", ns)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[SemaphoreState])
		return err
	})
	return all, err
}

// RunnerState is a runner that is not known to be dead.
type RunnerState struct {
	No        int32
	Host      string
	PID       int32
	Version   string
	Build     int64
	StartedAt time.Time
	Alive     bool // it has beaten in time
	Draining  bool // it was told to stop
	Ended     bool // it stopped, or was declared dead where it was not told to, in the last five minutes
}

// ObjectCount counts the objects of one kind that a project owns; "" counts unowned ones.
type ObjectCount struct {
	Project string
	Kind    schema.Kind
	InForce int64
	Retired int64
}

// RunnerProject is what a runner made of the files of a project.
type RunnerProject struct {
	Runner     int32
	Project    string // its folder, as long as nf.yaml could not be read
	Digest     []byte // of the content that was looked at last; nil = none could be read
	Commit     string
	Generation int64 // in force, as that runner saw it
	State      string
	Reason     string
	Findings   int64
	At         time.Time
}

// SaveRunnerProject keeps what a runner made of a project, for nf status. ago is how long it has been so. folder stood for the project before it had a name.
func (s *Store) SaveRunnerProject(ctx context.Context, p RunnerProject, ago time.Duration, folder string) error {
	return s.InTx(ctx, API, "runner_project_save", func(ctx context.Context, t *Tx) error {
		_, err := t.exec(ctx, "runner_project_save", "", p.Runner, p.Project, p.Digest, orNull(p.Commit), p.Generation, p.State, p.Reason, p.Findings,
			max(ago, 0).Milliseconds(), folder)
		return err
	})
}

// Status is what `nf status` shows, read at one time.
type Status struct {
	Install  Install
	Projects []Project
	Objects  []ObjectCount
	Runners  []RunnerState
	Files    []RunnerProject
	Fleet    Fleet
}

// Status reads the state of the environment.
func (s *Store) Status(ctx context.Context) (Status, error) {
	var st Status
	var err error
	if st.Install, err = s.Install(ctx); err != nil {
		return st, err
	}
	if st.Projects, err = s.Projects(ctx); err != nil {
		return st, err
	}
	if st.Fleet, err = s.Fleet(ctx); err != nil {
		return st, err
	}
	err = s.InTx(ctx, API, "status", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "status_objects", "")
		if err != nil {
			return err
		}
		if st.Objects, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ObjectCount]); err != nil {
			return fmt.Errorf("objects: %w", err)
		}
		if rows, err = t.query(ctx, "status_runners", ""); err != nil {
			return err
		}
		if st.Runners, err = pgx.CollectRows(rows, pgx.RowToStructByPos[RunnerState]); err != nil {
			return fmt.Errorf("runners: %w", err)
		}
		if rows, err = t.query(ctx, "status_runner_projects", ""); err != nil {
			return err
		}
		st.Files, err = pgx.CollectRows(rows, pgx.RowToStructByPos[RunnerProject])
		return err
	})
	return st, err
}
