// Package reload keeps what is in force equal to the files of the projects that a runner hosts (design C10).
//
// Each project has a loop of its own: it wakes, settles, takes a snapshot, loads it, has it applied, and says what happened. A set that is broken, refused
// or older than what is in force changes nothing: the last good one goes on, and the state says why. Watching gives hints; a poll finds what they missed.
//
// What to do next is decided by pure functions over facts and times (decide.go). The rest does as they say and is thin.
package reload

import (
	"context"
	"log/slog"
	"time"

	"nf/loader"
	"nf/loader/plan"
	"nf/loader/snapshot"
	"nf/runtime/clock"
	"nf/runtime/telemetry"
	"nf/schema/diag"
)

// Result is what came of one look at a project.
type Result string

// The results.
const (
	Applied   Result = "applied"   // a new generation is in force
	Unchanged Result = "unchanged" // what is in force is what the files say
	Pending   Result = "pending"   // would be applied, and may not yet: manual, paused, a retirement seen once
	Refused   Result = "refused"   // the plan holds what may not be applied
	Behind    Result = "behind"    // what is in force is newer (P11)
	Failed    Result = "failed"    // the source cannot be loaded
	Waiting   Result = "waiting"   // the folder is not there
	Busy      Result = "busy"      // the source is being changed
	Errored   Result = "error"     // the world failed, the database for one: tried again
)

// State is the state that a project is in on this runner (nf_runner_project.state).
type State string

// The states.
const (
	OK            State = "ok"
	StateDegraded State = "degraded" // broken since this process began; what the database holds goes on (P12)
	StateFailed   State = "failed"   // broken after it had been sound
	StatePending  State = "pending"
	StatePaused   State = "paused"
	StateRefused  State = "refused"
	StateBehind   State = "behind"
	StateWaiting  State = "waiting" // for root
	StateBusy     State = "busy"    // for more than a minute (NF7005)
)

// Loaded is a set that was loaded without an error, or one without any manifest, which the guards must judge (NF6103).
type Loaded struct {
	Folder   string
	Snapshot snapshot.Snapshot
	Bundle   loader.Bundle
	Findings diag.List // warnings, or NF7001 of an empty one
	// RetireSeen says that an equal read came long enough before this one: without commits a retirement needs it (P9).
	RetireSeen bool
	// ChangedFrom is the digest of the content that was in force when this process saw its source change, as plan.Source.Digest writes it; "" = it saw none
	// such. A superseded content goes in only if that is still what is in force (P11).
	ChangedFrom string
}

// Outcome is what came of the attempt to apply a set: Applied, Unchanged, Pending, Refused or Behind.
type Outcome struct {
	Result     Result
	Reason     string // why it was not applied, one line
	Generation int64  // in force now, 0 = none
	Commit     string // in force now
	Plan       *plan.Plan
	Findings   diag.List // why it was refused
	Paused     bool      // Pending, because reconciling is paused
	Unseen     bool      // Pending, because it retires and was read once
}

// Options say what a group of projects works with. All are required but Told, Save, Metrics and Log.
type Options struct {
	// Load checks a snapshot. It must be pure: the same bytes, the same findings.
	Load func(context.Context, snapshot.Snapshot) (loader.Bundle, diag.List)
	// Apply puts a set in force, or says why not. An error is the world's and is tried again.
	Apply func(context.Context, Loaded) (Outcome, error)
	// Told is called when there is news of a project, once for each content and result.
	Told func(Event)
	// Save keeps the state for others to see. It may fail.
	Save func(context.Context, Status) error

	Mode    snapshot.Mode
	Watch   bool
	Quiet   time.Duration
	Poll    time.Duration
	Clock   clock.Clock
	Jitter  func() float64 // from [0, 1)
	Metrics *telemetry.Metrics
	Log     *slog.Logger
}

// Event is news of a project.
type Event struct {
	Status Status
	Bundle *loader.Bundle // what was loaded, with the texts for showing findings; nil where nothing could be read
	Plan   *plan.Plan     // nil where none was made

	Findings diag.List // all of them
	Took     time.Duration
}

// Status is the state of one project on this runner. Its JSON form stands in /v1/status.
type Status struct {
	Folder     string        `json:"folder"`
	Project    string        `json:"project,omitempty"` // "" until nf.yaml could be read
	State      State         `json:"state"`
	Since      time.Time     `json:"since"` // of the state
	Reason     string        `json:"reason,omitempty"`
	Result     Result        `json:"result"` // of the last look
	Attempted  Content       `json:"attempted"`
	Generation int64         `json:"generation"` // in force, as seen by the last look that asked
	Commit     string        `json:"commit,omitempty"`
	LastGood   *time.Time    `json:"last_success_at,omitempty"` // when the files were in force last
	OutOfSync  *time.Time    `json:"out_of_sync_since,omitempty"`
	Plan       *plan.Summary `json:"plan,omitempty"` // of what is pending or refused
	Findings   diag.List     `json:"findings"`       // at most maxFindings
	Count      int           `json:"finding_count"`
	Changed    []string      `json:"changed,omitempty"` // files that differ from the commit that was read (NF7006)
	Watched    int           `json:"watched"`           // folders
	Polling    string        `json:"polling,omitempty"` // why changes are found by polling only (NF7007)
}

// Content names what was read.
type Content struct {
	Commit string    `json:"commit,omitempty"`
	Branch string    `json:"branch,omitempty"`
	Digest string    `json:"digest,omitempty"`
	Sum    []byte    `json:"-"` // the same, as bytes
	At     time.Time `json:"at"`
}

// maxFindings bounds the findings that a status shows.
const maxFindings = 50

// Verdict is the answer to a request to reload.
type Verdict struct {
	Project    string    `json:"project,omitempty"`
	Folder     string    `json:"folder"`
	Generation int64     `json:"generation"`
	Commit     string    `json:"commit,omitempty"`
	Result     Result    `json:"result"`
	Reason     string    `json:"reason,omitempty"`
	Findings   diag.List `json:"findings,omitempty"`
}

// OK says whether the files are in force, or would be if nobody had said otherwise.
func (v Verdict) OK() bool {
	return v.Result == Applied || v.Result == Unchanged || v.Result == Pending
}
