package view

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"nf/runtime/store"
)

// Status draws the state of an environment. database is shown as it is.
func Status(st *store.Status, database string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "environment %s   database %s   schema %d\n\n", Safe(st.Install.Environment), Safe(database), st.Install.SchemaVersion)
	projects := make([][]string, len(st.Projects))
	for i, p := range st.Projects {
		projects[i] = []string{p.Name, strconv.FormatInt(p.Generation, 10), source8(p), p.AppliedBy, inForce(st, p.Name)}
	}
	if len(projects) == 0 {
		b.WriteString("Nothing is in force yet: run nf apply.\n")
	} else {
		b.WriteString(Table([]string{"PROJECT", "GENERATION", "SOURCE", "APPLIED BY", "OBJECTS"}, projects))
	}
	b.WriteString("\n")
	runners, up := make([][]string, len(st.Runners)), false
	for i, r := range st.Runners {
		up = up || !r.Ended
		runners[i] = []string{strconv.Itoa(int(r.No)), r.Host, strconv.Itoa(int(r.PID)), r.Version, runnerState(r)}
	}
	if len(runners) > 0 {
		b.WriteString(Table([]string{"RUNNER", "HOST", "PID", "VERSION", "STATE"}, runners))
	}
	if !up {
		b.WriteString("No runner: start one with nf run.\n")
	}
	f := st.Fleet
	fmt.Fprintf(&b, "\nexecutions %d running   tasks %d ready, %d leased, %d delayed   to decide %d   timers overdue %d\n",
		f.Running, f.Ready, f.Leased, f.Delayed, f.Marks, f.TimersOverdue)
	return b.String()
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

// source8 names what is in force: a commit, or the content's digest.
func source8(p store.Project) string {
	if p.Commit != "" {
		return short(p.Commit) + " " + p.Branch
	}
	return content(hex.EncodeToString(p.Digest))
}

func inForce(st *store.Status, project string) string {
	var parts []string
	for _, o := range st.Objects {
		if o.Project != project {
			continue
		}
		text := fmt.Sprintf("%d %s", o.InForce, o.Kind)
		if o.Retired > 0 {
			text += fmt.Sprintf(" (+%d retired)", o.Retired)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

type statusForm struct {
	FormatVersion string        `json:"format_version"`
	Environment   string        `json:"environment"`
	Schema        int64         `json:"schema"`
	Projects      []projectForm `json:"projects"`
	Runners       []runnerForm  `json:"runners"`
	Fleet         fleetForm     `json:"fleet"`
}

type projectForm struct {
	Project    string        `json:"project"`
	Generation int64         `json:"generation"`
	Commit     string        `json:"commit,omitempty"`
	Branch     string        `json:"branch,omitempty"`
	Digest     string        `json:"digest"`
	AppliedAt  string        `json:"applied_at,omitempty"`
	AppliedBy  string        `json:"applied_by,omitempty"`
	Objects    []objectsForm `json:"objects"`
}

type objectsForm struct {
	Kind    string `json:"kind"`
	InForce int64  `json:"in_force"`
	Retired int64  `json:"retired"`
}

type runnerForm struct {
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

type fleetForm struct {
	Running       int64 `json:"running"`
	Ready         int64 `json:"ready"`
	Leased        int64 `json:"leased"`
	Delayed       int64 `json:"delayed"`
	ToDecide      int64 `json:"to_decide"`
	TimersOverdue int64 `json:"timers_overdue"`
	RunnersAlive  int64 `json:"runners_alive"`
}

// StatusForm is the JSON form of a status.
func StatusForm(st *store.Status) any {
	out := statusForm{
		FormatVersion: FormatVersion, Environment: st.Install.Environment, Schema: st.Install.SchemaVersion, Projects: []projectForm{}, Runners: []runnerForm{},
		Fleet: fleetForm{
			Running: st.Fleet.Running, Ready: st.Fleet.Ready, Leased: st.Fleet.Leased, Delayed: st.Fleet.Delayed, ToDecide: st.Fleet.Marks,
			TimersOverdue: st.Fleet.TimersOverdue, RunnersAlive: st.Fleet.RunnersAlive,
		},
	}
	for _, p := range st.Projects {
		form := projectForm{
			Project: p.Name, Generation: p.Generation, Commit: p.Commit, Branch: p.Branch, Digest: "sha256:" + hex.EncodeToString(p.Digest),
			AppliedBy: p.AppliedBy, Objects: []objectsForm{},
		}
		if !p.AppliedAt.IsZero() {
			form.AppliedAt = p.AppliedAt.UTC().Format(time.RFC3339)
		}
		for _, o := range st.Objects {
			if o.Project == p.Name {
				form.Objects = append(form.Objects, objectsForm{string(o.Kind), o.InForce, o.Retired})
			}
		}
		out.Projects = append(out.Projects, form)
	}
	for _, r := range st.Runners {
		out.Runners = append(out.Runners, runnerForm{r.No, r.Host, r.PID, r.Version, r.Build, r.StartedAt.UTC().Format(time.RFC3339), r.Alive, r.Draining, runnerState(r)})
	}
	return out
}

// Schema draws the state of the schema. misfit says why this build may not work on it, "" if it may.
func Schema(st *store.SchemaStatus, build int64, misfit string) string {
	var b strings.Builder
	if st.Install.Environment != "" {
		fmt.Fprintf(&b, "environment %s   min_build %d   this build %d\n", Safe(st.Install.Environment), st.Install.MinBuild, build)
	}
	for _, m := range st.Applied {
		fmt.Fprintf(&b, "  %04d %-24s ran %s\n", m.Version, m.Name, m.AppliedAt.UTC().Format(time.RFC3339))
	}
	for _, m := range st.Pending {
		fmt.Fprintf(&b, "  %04d %-24s pending\n", m.Version, m.Name)
	}
	for _, v := range st.Newer {
		fmt.Fprintf(&b, "  %04d %-24s of a newer nf\n", v, "")
	}
	if !st.Days.Last.IsZero() {
		fmt.Fprintf(&b, "partitions up to %s (%d days ahead)\n", st.Days.Last.UTC().Format(time.DateOnly), st.Days.Ahead)
	}
	if misfit == "" {
		misfit = "this nf fits the schema"
	}
	b.WriteString(Safe(misfit) + "\n")
	return b.String()
}
