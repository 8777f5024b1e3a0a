package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"nf/runtime/api"
	"nf/runtime/store"
)

// Status draws the state of an environment. origin says where it comes from and is shown as it is.
func Status(st *api.Status, origin string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "environment %s   %s   schema %d\n\n", Safe(st.Environment), Safe(origin), st.Schema)
	projects := make([][]string, len(st.Projects))
	for i, p := range st.Projects {
		projects[i] = []string{p.Project, strconv.FormatInt(p.Generation, 10), source8(p.Commit, p.Branch, p.Digest), p.AppliedBy, inForce(p.Objects)}
	}
	if len(projects) == 0 {
		b.WriteString("Nothing is in force yet: run nf apply.\n")
	} else {
		b.WriteString(Table([]string{"PROJECT", "GENERATION", "SOURCE", "APPLIED BY", "OBJECTS"}, projects))
	}
	b.WriteString("\n")
	runners, up := make([][]string, len(st.Runners)), false
	for i, r := range st.Runners {
		up = up || r.State != "stopped" && r.State != "dead"
		runners[i] = []string{strconv.Itoa(int(r.Runner)), r.Host, strconv.Itoa(int(r.PID)), r.Version, r.State}
	}
	if len(runners) > 0 {
		b.WriteString(Table([]string{"RUNNER", "HOST", "PID", "VERSION", "STATE"}, runners))
	}
	if !up {
		b.WriteString("No runner: start one with nf run.\n")
	}
	b.WriteString(files(st.Files))
	for _, name := range st.Unresolved {
		fmt.Fprintf(&b, "secret %s does not resolve on the runner that answers\n", Safe(name))
	}
	f := st.Fleet
	fmt.Fprintf(&b, "\nexecutions %d running   tasks %d ready, %d leased, %d delayed   to decide %d   timers overdue %d\n",
		f.Running, f.Ready, f.Leased, f.Delayed, f.ToDecide, f.TimersOverdue)
	return b.String()
}

// files draws what each runner made of its files, and below the table why some are not in force.
func files(all []api.FileStatus) string {
	if len(all) == 0 {
		return ""
	}
	rows := make([][]string, len(all))
	var why strings.Builder
	for i, f := range all {
		rows[i] = []string{strconv.Itoa(int(f.Runner)), f.Project, f.State, source8(f.Commit, "", f.Digest), strconv.FormatInt(f.Generation, 10), f.At}
		if f.Reason != "" {
			fmt.Fprintf(&why, "runner %d, %s: %s\n", f.Runner, Safe(f.Project), Safe(f.Reason))
		}
	}
	return "\n" + Table([]string{"RUNNER", "FILES OF", "STATE", "SOURCE", "GENERATION", "SINCE"}, rows) + why.String()
}

// source8 names a content: its commit, or its digest.
func source8(commit, branch, digest string) string {
	switch {
	case commit != "":
		return strings.TrimSpace(short(commit) + " " + branch)
	case digest == "":
		return "-"
	}
	return content(digest)
}

func inForce(objects []api.ObjectCount) string {
	parts := make([]string, 0, len(objects))
	for _, o := range objects {
		text := fmt.Sprintf("%d %s", o.InForce, o.Kind)
		if o.Retired > 0 {
			text += fmt.Sprintf(" (+%d retired)", o.Retired)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
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
