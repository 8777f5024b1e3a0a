package api

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"nf/runtime/reload"
	"nf/runtime/store"
)

// Reloader keeps what is in force equal to the files of the projects that a runner hosts. Safe for concurrent use.
type Reloader interface {
	Look(context.Context) []reload.Verdict
	Status() []reload.Status
	Observe()
}

// FormatVersion is the version of the JSON documents that the command line prints too. Fields are added within it, never removed.
const FormatVersion = "1.0"

// Status is the state of an environment, as /v1/status and nf status give it.
type Status struct {
	FormatVersion string          `json:"format_version"`
	Environment   string          `json:"environment"`
	Schema        int64           `json:"schema"`
	Projects      []ProjectStatus `json:"projects"`
	Runners       []RunnerStatus  `json:"runners"`
	Files         []FileStatus    `json:"files"`                        // what each runner made of the files of its projects
	Reload        []reload.Status `json:"reload,omitempty"`             // the same of the runner that answers, in full
	Unresolved    []string        `json:"secrets_unresolved,omitempty"` // on the runner that answers
	Fleet         FleetStatus     `json:"fleet"`
}

// ProjectStatus is what is in force of a project.
type ProjectStatus struct {
	Project    string        `json:"project"`
	Generation int64         `json:"generation"`
	Commit     string        `json:"commit,omitempty"`
	Branch     string        `json:"branch,omitempty"`
	Digest     string        `json:"digest"`
	AppliedAt  string        `json:"applied_at,omitempty"`
	AppliedBy  string        `json:"applied_by,omitempty"`
	Objects    []ObjectCount `json:"objects"`
}

// ObjectCount counts the objects of one kind.
type ObjectCount struct {
	Kind    string `json:"kind"`
	InForce int64  `json:"in_force"`
	Retired int64  `json:"retired"`
}

// RunnerStatus is a runner that is up, or that ended a moment ago.
type RunnerStatus struct {
	Runner    int32  `json:"runner"`
	Host      string `json:"host"`
	PID       int32  `json:"pid"`
	Version   string `json:"version"`
	Build     int64  `json:"build"`
	StartedAt string `json:"started_at"`
	Alive     bool   `json:"alive"`
	Draining  bool   `json:"draining"`
	State     string `json:"state"` // alive, draining, silent, stopped or dead
}

// FileStatus is what a runner made of the files of a project last.
type FileStatus struct {
	Runner     int32  `json:"runner"`
	Project    string `json:"project"` // its folder, as long as nf.yaml could not be read
	State      string `json:"state"`
	Commit     string `json:"commit,omitempty"`
	Digest     string `json:"digest,omitempty"`
	Generation int64  `json:"generation"`
	Findings   int64  `json:"findings"`
	Reason     string `json:"reason,omitempty"`
	At         string `json:"at"`
}

// FleetStatus is what the whole fleet has open.
type FleetStatus struct {
	Running       int64 `json:"running"`
	Ready         int64 `json:"ready"`
	Leased        int64 `json:"leased"`
	Delayed       int64 `json:"delayed"`
	ToDecide      int64 `json:"to_decide"`
	TimersOverdue int64 `json:"timers_overdue"`
	RunnersAlive  int64 `json:"runners_alive"`
}

// StatusOf makes the answer of what the store says.
func StatusOf(st *store.Status) Status {
	f := st.Fleet
	out := Status{
		FormatVersion: FormatVersion, Environment: st.Install.Environment, Schema: st.Install.SchemaVersion,
		Projects: []ProjectStatus{}, Runners: []RunnerStatus{}, Files: []FileStatus{},
		Fleet: FleetStatus{f.Running, f.Ready, f.Leased, f.Delayed, f.Marks, f.TimersOverdue, f.RunnersAlive},
	}
	for _, p := range st.Projects {
		out.Projects = append(out.Projects, projectStatus(st, p))
	}
	for _, r := range st.Runners {
		out.Runners = append(out.Runners, RunnerStatus{r.No, r.Host, r.PID, r.Version, r.Build, r.StartedAt.UTC().Format(time.RFC3339), r.Alive, r.Draining, runnerState(r)})
	}
	for _, p := range st.Files {
		out.Files = append(out.Files, FileStatus{
			Runner: p.Runner, Project: p.Project, State: p.State, Commit: p.Commit, Digest: digestText(p.Digest), Generation: p.Generation,
			Findings: p.Findings, Reason: p.Reason, At: p.At.UTC().Format(time.RFC3339),
		})
	}
	return out
}

// runnerState says in a word what a runner does.
func runnerState(r store.RunnerState) string {
	switch {
	case r.Ended && r.Draining:
		return "stopped"
	case r.Ended:
		return "dead"
	case !r.Alive:
		return "silent"
	case r.Draining:
		return "draining"
	}
	return "alive"
}

func projectStatus(st *store.Status, p store.Project) ProjectStatus {
	out := ProjectStatus{
		Project: p.Name, Generation: p.Generation, Commit: p.Commit, Branch: p.Branch, Digest: digestText(p.Digest), AppliedBy: p.AppliedBy,
		Objects: []ObjectCount{},
	}
	if !p.AppliedAt.IsZero() {
		out.AppliedAt = p.AppliedAt.UTC().Format(time.RFC3339)
	}
	for _, o := range st.Objects {
		if o.Project == p.Name {
			out.Objects = append(out.Objects, ObjectCount{string(o.Kind), o.InForce, o.Retired})
		}
	}
	return out
}

func digestText(digest []byte) string {
	if digest == nil {
		return ""
	}
	return "sha256:" + hex.EncodeToString(digest)
}

// getStatus answers what nf status -o json prints, and how the files of this runner fare. A key of some namespaces only gets no counts, reasons or findings:
// they speak of all.
func (c *call) getStatus() (any, error) {
	st, err := c.s.Store.Status(c.Context())
	if err != nil {
		return nil, err
	}
	out := StatusOf(&st)
	if c.s.Reload != nil {
		out.Reload = c.s.Reload.Status()
	}
	if c.s.Unresolved != nil {
		out.Unresolved = c.s.Unresolved()
	}
	if c.who.AllNamespaces() {
		return out, nil
	}
	for i := range out.Projects {
		out.Projects[i].Objects = []ObjectCount{}
	}
	for i := range out.Files {
		out.Files[i].Reason = ""
	}
	out.Reload, out.Unresolved = nil, nil
	return out, nil
}

// reload looks at the files of every project of this runner now. 200: all are in force, or would be if nobody had said otherwise; else 422.
func (c *call) reload() (any, error) {
	if !c.who.AllNamespaces() {
		return nil, &failure{
			code: codeInsufficientScope, message: "a reload concerns every namespace: it needs a key of all (nf keys create --namespace '*')",
			details: map[string]any{"scope": string(c.route.scope), "namespace": "*"},
		}
	}
	verdicts := []reload.Verdict{}
	if c.s.Reload != nil {
		verdicts = c.s.Reload.Look(c.Context())
	}
	for _, v := range verdicts {
		if !v.OK() {
			return nil, &failure{code: codeReloadFailed, message: fmt.Sprintf("the files of %s are not in force: %s (%s)", v.Folder, v.Reason, v.Result), details: map[string]any{"projects": verdicts}}
		}
	}
	return map[string]any{"projects": verdicts}, nil
}
