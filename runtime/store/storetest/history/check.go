package history

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"nf/policies/retry"
	"nf/runtime/execution"
)

// Check gives every violation, in order of the invariants; none means that they hold.
func Check(h *History) []string {
	c := &checker{h: h, rows: map[string][]Row{}, grants: map[string][]Grant{}}
	for _, r := range h.Rows {
		c.rows[r.Execution] = append(c.rows[r.Execution], r)
	}
	for _, g := range h.Grants {
		id := attemptID(g.Execution, g.TaskNo, g.Attempt)
		c.grants[id] = append(c.grants[id], g)
	}
	c.starts()
	c.verdicts()
	c.caps()
	c.attempts()
	c.budget()
	c.deadlines()
	c.sequences()
	if h.Audited != h.Actions {
		c.violated(13, "%d audit rows for %d actions", h.Audited, h.Actions)
	}
	if h.Deadlocks != 0 {
		c.violated(15, "%d deadlocks", h.Deadlocks)
	}
	sort.Strings(c.found)
	return c.found
}

type checker struct {
	h      *History
	rows   map[string][]Row
	grants map[string][]Grant
	found  []string
}

func (c *checker) violated(invariant int, format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf("D5.%02d: ", invariant)+fmt.Sprintf(format, args...))
}

func attemptID(execution string, no, attempt int32) string {
	return fmt.Sprintf("%s.%d.%d", execution, no, attempt)
}

// starts: every accepted start ends terminal or is still there; one key is one run; none comes from a refused start.
func (c *checker) starts() {
	exists := map[string]Execution{}
	for _, x := range c.h.Executions {
		if _, twice := exists[x.ID]; twice {
			c.violated(1, "execution %s is open and closed, or closed twice", x.ID)
		}
		exists[x.ID] = x
	}
	byKey, accepted := map[string]string{}, map[string]bool{}
	for _, s := range c.h.Starts {
		if s.ExecutionID == "" {
			continue
		}
		accepted[s.ExecutionID] = true
		if _, ok := exists[s.ExecutionID]; !ok {
			c.violated(1, "start %s was answered with %s, which does not exist", s.Key, s.ExecutionID)
		}
		if before, ok := byKey[s.Key]; ok && before != s.ExecutionID {
			c.violated(1, "key %s started %s and %s", s.Key, before, s.ExecutionID)
		}
		byKey[s.Key] = s.ExecutionID
	}
	for id, x := range exists {
		if !accepted[id] {
			c.violated(1, "execution %s was created by no accepted start", id)
		}
		if x.Open {
			c.violated(1, "execution %s has not ended", id)
		}
	}
}

// verdicts: one accepted verdict an attempt, from the latest fence; nothing terminal was rewritten.
func (c *checker) verdicts() {
	if c.h.Rewritten != 0 {
		c.violated(2, "%d terminal statuses were rewritten", c.h.Rewritten)
	}
	told := map[string]Verdict{}
	for _, v := range c.h.Verdicts {
		if !v.Accepted {
			continue
		}
		if before, twice := told[v.TaskID]; twice {
			c.violated(2, "attempt %s: verdicts %s and %s were both accepted", v.TaskID, before.Status, v.Status)
		}
		told[v.TaskID] = v
	}
	stands := map[string]Row{}
	for _, r := range c.h.Rows {
		id := attemptID(r.Execution, r.TaskNo, r.Attempt)
		if _, twice := stands[id]; twice {
			c.violated(2, "attempt %s ended twice", id)
		}
		stands[id] = r
		if r.Fence == 0 {
			continue
		}
		latest := int64(0)
		for _, g := range c.grants[id] {
			latest = max(latest, g.Fence)
		}
		if latest != r.Fence {
			c.violated(3, "attempt %s ended by fence %d, the latest is %d", id, r.Fence, latest)
		}
	}
	for id, v := range told {
		r, ok := stands[id]
		switch {
		case !ok:
			c.violated(2, "the accepted verdict of attempt %s is not there", id)
		case r.Fence != v.Fence || execution.Status(r.Status).String() != v.Status:
			c.violated(2, "attempt %s: %s by fence %d was accepted, %s by fence %d stands", id, v.Status, v.Fence, execution.Status(r.Status), r.Fence)
		}
	}
}

// caps: at no grant more leases than the cap, at no grant more permits than there are; a waiting task holds nothing (12).
func (c *checker) caps() {
	for _, g := range c.h.Grants {
		t := c.h.Tasks[g.TaskNo]
		if t.Cap > 0 && g.InFlight > t.Cap {
			c.violated(4, "grant %d of %s: %d in flight, the cap is %d", g.Fence, t.Ref, g.InFlight, t.Cap)
		}
		if g.Over != "" {
			c.violated(4, "grant %d of %s: %s", g.Fence, t.Ref, g.Over)
		}
		if execution.Kind(g.Kind) == execution.KindWait {
			c.violated(12, "a WAIT of %s was leased", g.Execution)
		}
	}
}

// attempts: not more than the policy gives; deliveries within 5, and 1 under atMostOnce; delays by the formula, never before the
// provider's minimum.
func (c *checker) attempts() {
	for id, rows := range c.rows {
		slices.SortFunc(rows, func(a, b Row) int {
			if a.TaskNo != b.TaskNo {
				return int(a.TaskNo - b.TaskNo)
			}
			return int(a.Attempt - b.Attempt)
		})
		for i, r := range rows {
			t, ok := c.h.Tasks[r.TaskNo]
			if !ok {
				c.violated(9, "execution %s has a task number %d that the workflow lacks", id, r.TaskNo)
				continue
			}
			if int(r.Attempt) > t.RetryCount+1 {
				c.violated(9, "%s of %s: attempt %d, %d are allowed", t.Ref, id, r.Attempt, t.RetryCount+1)
			}
			c.deliveries(r, t)
			if r.NextAt.IsZero() {
				continue
			}
			c.delay(r, t)
			if i+1 == len(rows) || rows[i+1].TaskNo != r.TaskNo || rows[i+1].Attempt != r.Attempt+1 {
				c.violated(9, "%s of %s: attempt %d was followed by none", t.Ref, id, r.Attempt)
			}
		}
	}
}

func (c *checker) deliveries(r Row, t Task) {
	grants := c.grants[attemptID(r.Execution, r.TaskNo, r.Attempt)]
	most := int32(0)
	for _, g := range grants {
		most = max(most, g.Deliveries)
	}
	if most > 5 || r.Deliveries > 5 {
		c.violated(9, "%s of %s: attempt %d was delivered %d times", t.Ref, r.Execution, r.Attempt, max(most, r.Deliveries))
	}
	if t.AtMostOnce && most > 1 {
		c.violated(9, "%s of %s: attempt %d is atMostOnce and was delivered %d times", t.Ref, r.Execution, r.Attempt, most)
	}
}

func (c *checker) delay(r Row, t Task) {
	unit := retry.Unit(r.Execution, t.Ref, "0", int(r.Attempt))
	want := retry.Wait(t.Policy, int(r.Attempt), 0, unit)
	if int64(want.Policy) != r.PolicyMs {
		c.violated(9, "%s of %s: the delay after attempt %d is %d ms, the formula gives %d", t.Ref, r.Execution, r.Attempt, r.PolicyMs, want.Policy)
	}
	selected := time.Duration(max(r.PolicyMs, r.MinimumMs)) * time.Millisecond
	if r.NextAt.Before(r.EndedAt.Add(selected).Add(-time.Millisecond)) {
		c.violated(9, "%s of %s: due %s after attempt %d, %s were due", t.Ref, r.Execution, r.NextAt.Sub(r.EndedAt), r.Attempt, selected)
	}
	for _, g := range c.grants[attemptID(r.Execution, r.TaskNo, r.Attempt+1)] {
		if g.At.Before(r.NextAt) {
			c.violated(9, "%s of %s: attempt %d was leased %s before it was due", t.Ref, r.Execution, r.Attempt+1, r.NextAt.Sub(g.At))
		}
	}
}

// window is that of the retry budget: 300 s, and the 10 s of a bucket.
const window = 310 * time.Second

// budget: at no retry were there more retries in the window than the budget allows, but for one batch of each decider.
func (c *checker) budget() {
	byDef := map[int32][]Row{}
	limits := map[int32]float64{}
	for _, r := range c.h.Rows {
		if t := c.h.Tasks[r.TaskNo]; r.DefID != 0 && t.Budget < 1 && r.VisibleAt != (time.Time{}) && execution.Status(r.Status) != execution.Canceled {
			byDef[r.DefID] = append(byDef[r.DefID], r)
			limits[r.DefID] = t.Budget
		}
	}
	for def, rows := range byDef {
		slices.SortFunc(rows, func(a, b Row) int { return a.EndedAt.Compare(b.EndedAt) })
		retries, total, from := int64(0), int64(0), 0
		for _, r := range rows {
			for rows[from].EndedAt.Before(r.EndedAt.Add(-window)) {
				if !rows[from].NextAt.IsZero() {
					retries--
				}
				total--
				from++
			}
			total++
			if r.NextAt.IsZero() {
				continue
			}
			if slack := c.h.Batch * c.h.Deciders; retry.Refuse(limits[def], total+slack, max(0, retries-slack)) {
				c.violated(10, "definition %d: a retry at %s with %d retries of %d attempts, budget %g", def, r.EndedAt.Format(time.RFC3339Nano), retries, total, limits[def])
			}
			retries++
		}
	}
}

// deadlines: none fires early, none later than it may.
func (c *checker) deadlines() {
	for _, r := range c.h.Rows {
		t := c.h.Tasks[r.TaskNo]
		var due time.Time
		switch execution.Cause(r.Cause) {
		case execution.CauseTaskTimeout:
			due = r.VisibleAt.Add(time.Duration(t.Timeout) * time.Millisecond)
		case execution.CauseScheduleToStart:
			due = r.VisibleAt.Add(time.Duration(t.StartBy) * time.Millisecond)
		default:
			continue
		}
		if r.EndedAt.Before(due) {
			c.violated(11, "%s of %s: %s %s early", t.Ref, r.Execution, r.Cause, due.Sub(r.EndedAt))
		}
		// A scheduleToStart runs anew from each reclaim, so only its earliness is known from the row.
		if execution.Cause(r.Cause) == execution.CauseTaskTimeout && r.EndedAt.After(due.Add(c.h.Late)) {
			c.violated(11, "%s of %s: %s %s late", t.Ref, r.Execution, r.Cause, r.EndedAt.Sub(due))
		}
	}
}

// sequences: the history of an execution is numbered without gap, and a JOIN of a completed one fired once, after its branches.
func (c *checker) sequences() {
	for _, x := range c.h.Executions {
		seqs := slices.Clone(x.Events)
		seqOf := map[int32]int64{}
		joins := map[int32]int{}
		for _, r := range c.rows[x.ID] {
			seqs = append(seqs, r.Seq)
			seqOf[r.TaskNo] = max(seqOf[r.TaskNo], r.Seq)
			if execution.Kind(r.Kind) == execution.KindJoin && execution.Status(r.Status) == execution.Completed {
				joins[r.TaskNo]++
			}
		}
		slices.Sort(seqs)
		for i, s := range seqs {
			if s != int64(i)+2 {
				c.violated(14, "execution %s: event %d stands where %d belongs", x.ID, s, i+2)
				break
			}
		}
		if execution.Status(x.Status) != execution.Completed {
			continue
		}
		if int64(len(seqs))+2 != x.Seq {
			c.violated(14, "execution %s ended as event %d after %d others", x.ID, x.Seq, len(seqs)+1)
		}
		for no, t := range c.h.Tasks {
			if t.JoinOf == nil {
				continue
			}
			if joins[no] != 1 {
				c.violated(14, "%s of %s fired %d times", t.Ref, x.ID, joins[no])
			}
			for _, branch := range t.JoinOf {
				if seqOf[branch] == 0 || seqOf[branch] > seqOf[no] {
					c.violated(14, "%s of %s fired before its branch %d ended", t.Ref, x.ID, branch)
				}
			}
		}
	}
}
