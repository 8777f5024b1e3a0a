package registry_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/loader/plan"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
	"nf/schema"
	"nf/schema/diag"
)

// inputOf makes the input of a plan of objects that stand one after the other in one file.
func inputOf(t *testing.T, project string, objects ...schema.Object) plan.Input {
	t.Helper()
	set, err := schema.NewSet(objects...)
	require.NoError(t, err)
	in := plan.Input{Project: project, Desired: set, Origins: map[schema.Address]diag.Location{}, Source: plan.Source{Commit: "c0ffee"}}
	for i, o := range objects {
		in.Origins[o.Address()] = diag.Location{File: "all.yaml", Range: diag.Range{Start: diag.Pos{Line: 10 * (i + 1), Column: 1}}}
	}
	return in
}

// put plans and applies.
func put(t *testing.T, s *store.Store, in plan.Input) (registry.Result, error) {
	t.Helper()
	p, in, err := registry.Plan(t.Context(), s, in)
	require.NoError(t, err)
	return registry.Apply(t.Context(), s, p, in, registry.ApplyOptions{Actor: "ann", Build: 1})
}

func semaphore(name string, permits int64) *schema.Semaphore {
	return &schema.Semaphore{Metadata: meta(name), Permits: permits}
}

func refused(t *testing.T, err error) plan.Refusal {
	t.Helper()
	var refusal *registry.RefusedError
	require.ErrorAs(t, err, &refusal)
	require.NotEmpty(t, refusal.Plan.Refused)
	return refusal.Plan.Refused[0]
}

func TestApplyThenPlanIsEmpty(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	r, err := registry.Open(t.Context(), s)
	require.NoError(t, err)
	def := definition(t, "charge", map[string]any{"concurrentExecLimit": json.Number("2"), "semaphores": []any{"erp"}})
	def.Metadata.Labels, def.Metadata.Description = map[string]string{"a": "b"}, "charges"
	in := inputOf(t, "orders", def, workflow(t, "order", map[string]any{}), semaphore("erp", 3), &schema.Namespace{Metadata: schema.Metadata{Name: "shop"}})
	p, in, err := registry.Plan(t.Context(), s, in)
	require.NoError(t, err)
	require.Equal(t, storetest.Environment, p.Environment)
	done, err := r.Apply(t.Context(), p, in, registry.ApplyOptions{Actor: "ann", Build: 1})
	require.NoError(t, err)
	require.Equal(t, int64(1), done.Generation)
	o, ok := r.Snapshot().Object(def.Address())
	require.True(t, ok, "served at once by the process that applied")
	require.Equal(t, registry.Owner{Project: "orders", File: "all.yaml", Line: 10, Commit: "c0ffee"}, o.Owner)

	p, in, err = registry.Plan(t.Context(), s, in)
	require.NoError(t, err)
	require.True(t, p.Empty(), "%+v", p.Changes)
	done, err = registry.Apply(t.Context(), s, p, in, registry.ApplyOptions{Actor: "ann"})
	require.NoError(t, err)
	require.True(t, done.Unchanged)
	require.Equal(t, int64(1), done.Generation)
}

// A change of labels is a change of the plan and makes no revision (contract 1.1).
func TestLabelsMakeNoRevision(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	_, err := put(t, s, inputOf(t, "orders", definition(t, "charge", nil)))
	require.NoError(t, err)
	labelled := definition(t, "charge", nil)
	labelled.Metadata.Labels = map[string]string{"team": "a"}
	done, err := put(t, s, inputOf(t, "orders", labelled))
	require.NoError(t, err)
	require.Equal(t, int64(2), done.Generation)
	require.Equal(t, int32(1), done.Revisions[labelled.Address()])
}

// NF6101, NF6102 (P5, P16): what another project owns, or nobody, is refused and nothing is written.
func TestNF6101_NF6102_OwnershipIsHeld(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s := storetest.Open(t, url)
	_, err := put(t, s, inputOf(t, "orders", semaphore("erp", 3), semaphore("crm", 1)))
	require.NoError(t, err)
	_, err = put(t, s, inputOf(t, "billing", semaphore("erp", 4), semaphore("other", 1)))
	require.Equal(t, diag.Code("NF6101"), refused(t, err).Code)

	storetest.Exec(t, url, `UPDATE nf_object SET project = NULL, source_file = NULL, source_line = NULL, applied_revision = NULL, applied_generation = NULL
	   WHERE name = 'crm'`)
	_, err = put(t, s, inputOf(t, "billing", semaphore("crm", 4)))
	require.Equal(t, diag.Code("NF6102"), refused(t, err).Code)
	projects, err := s.Projects(t.Context())
	require.NoError(t, err)
	require.Len(t, projects, 1)
}

// BG-97: other content under an applied version is refused with file and line; without a version it is a new revision; in the private
// database of nf dev the version moves and the plan warns.
func TestBG_97_OtherContentUnderAnAppliedVersion(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	def := definition(t, "charge", nil)
	one := map[string]any{"version": json.Number("1"), "timeoutSeconds": json.Number("10")}
	_, err := put(t, s, inputOf(t, "orders", def, workflow(t, "order", one)))
	require.NoError(t, err)

	two := workflow(t, "order", map[string]any{"version": json.Number("1"), "timeoutSeconds": json.Number("20")})
	in := inputOf(t, "orders", def, two)
	p, _, err := registry.Plan(t.Context(), s, in)
	require.NoError(t, err)
	require.False(t, p.OK())
	require.Equal(t, diag.Code("NF6109"), p.Findings[0].Code)
	require.Equal(t, "all.yaml", p.Findings[0].File)
	require.Equal(t, 20, p.Findings[0].Range.Start.Line)
	_, err = put(t, s, in)
	require.Equal(t, diag.Code("NF6109"), refused(t, err).Code)

	done, err := put(t, s, inputOf(t, "orders", def, workflow(t, "order", map[string]any{"timeoutSeconds": json.Number("20")})))
	require.NoError(t, err)
	require.Equal(t, int32(2), done.Revisions[two.Address()])

	in.Private = true
	done, err = put(t, s, in)
	require.NoError(t, err)
	require.Equal(t, int32(3), done.Revisions[two.Address()])
	r, err := registry.Open(t.Context(), s)
	require.NoError(t, err)
	rev, err := r.Workflow(t.Context(), "shop", "order", 1)
	require.NoError(t, err)
	require.Equal(t, schema.Millis(20_000), rev.Workflow.Timeout)

	back := inputOf(t, "orders", def, workflow(t, "order", one))
	back.Private = true
	done, err = put(t, s, back)
	require.NoError(t, err)
	require.Equal(t, int32(1), done.Revisions[two.Address()], "the old content, its old number, its version again")
	require.NoError(t, r.Refresh(t.Context()))
	rev, err = r.Workflow(t.Context(), "shop", "order", 1)
	require.NoError(t, err)
	require.Equal(t, schema.Millis(10_000), rev.Workflow.Timeout)
}

// NF6103 (P9): the guards are judged in the transaction as well.
func TestNF6103_RetiringTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	var all []schema.Object
	for i := range 6 {
		all = append(all, semaphore(fmt.Sprintf("s%d", i), 1))
	}
	_, err := put(t, s, inputOf(t, "orders", all...))
	require.NoError(t, err)
	_, err = put(t, s, inputOf(t, "orders", all[:2]...))
	require.Equal(t, diag.Code("NF6103"), refused(t, err).Code)
	done, err := put(t, s, inputOf(t, "orders", all[:3]...))
	require.NoError(t, err)
	require.Equal(t, 3, done.Plan.Summary.Delete)
}

// NF6108 (P13).
func TestNF6108_PlanForAnotherEnvironmentIsRefused(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	in := inputOf(t, "orders", semaphore("erp", 3))
	in.Environment = "prod"
	_, _, err := registry.Plan(t.Context(), s, in)
	var other *store.EnvironmentError
	require.ErrorAs(t, err, &other)
}

// NF6106: of two applies of different sets at once one wins and the other is stale; of two equal ones both succeed and one generation
// is made.
func TestNF6106_TwoAppliesAtOnce(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	for round := range 6 {
		equal := round%2 == 1
		errs := make([]error, 2)
		results := make([]registry.Result, 2)
		var start, done sync.WaitGroup
		start.Add(1)
		for i := range errs {
			s := storetest.Open(t, url)
			permits := int64(10*round + 1)
			if !equal {
				permits += int64(i)
			}
			p, in, err := registry.Plan(t.Context(), s, inputOf(t, "orders", semaphore("erp", permits)))
			require.NoError(t, err)
			done.Go(func() {
				start.Wait()
				results[i], errs[i] = registry.Apply(t.Context(), s, p, in, registry.ApplyOptions{Actor: "ann"})
			})
		}
		start.Done()
		done.Wait()
		if equal {
			require.NoError(t, errors.Join(errs...))
			require.NotEqual(t, results[0].Unchanged, results[1].Unchanged)
			require.Equal(t, results[0].Generation, results[1].Generation)
			continue
		}
		lost := errors.Join(errs...)
		require.ErrorIs(t, lost, store.ErrStale)
		require.NotEqual(t, errs[0] == nil, errs[1] == nil, "one wins")
	}
}

// A plan that no longer says what an apply would do is stale, generation or not.
func TestNF6106_PlanThatIsOutdatedByAnObjectOfOthers(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	_, err := put(t, s, inputOf(t, "orders", semaphore("erp", 3)))
	require.NoError(t, err)
	p, in, err := registry.Plan(t.Context(), s, inputOf(t, "orders", semaphore("erp", 3), semaphore("crm", 1)))
	require.NoError(t, err)
	_, err = put(t, s, inputOf(t, "billing", semaphore("crm", 2)))
	require.NoError(t, err)
	_, err = registry.Apply(t.Context(), s, p, in, registry.ApplyOptions{Actor: "ann"})
	require.Equal(t, diag.Code("NF6101"), refused(t, err).Code)
}

// A namespace that an object names is made with it; removing the manifest of one that holds objects in force retires nothing.
func TestNamespacesComeWithTheirObjects(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ns := &schema.Namespace{Metadata: schema.Metadata{Name: "shop"}}
	in := inputOf(t, "orders", semaphore("erp", 3), ns)
	p, _, err := registry.Plan(t.Context(), s, in)
	require.NoError(t, err)
	require.Empty(t, p.Namespaces)
	_, err = put(t, s, in)
	require.NoError(t, err)
	done, err := put(t, s, inputOf(t, "orders", semaphore("erp", 3)))
	require.NoError(t, err)
	require.True(t, done.Unchanged || len(done.Plan.Changes) == 0)
	r, err := registry.Open(t.Context(), s)
	require.NoError(t, err)
	o, ok := r.Snapshot().Object(ns.Address())
	require.True(t, ok)
	require.False(t, o.Retired())
}

// A failed apply is written to the log in a transaction of its own (A3 53).
func TestFailedApplyIsLogged(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s := storetest.Open(t, url)
	p, in, err := registry.Plan(t.Context(), s, inputOf(t, "orders", semaphore("erp", 3)))
	require.NoError(t, err)
	p.Base.Generation = 5
	_, err = registry.Apply(t.Context(), s, p, in, registry.ApplyOptions{Actor: "ann"})
	require.ErrorIs(t, err, store.ErrStale)
	storetest.Exec(t, url, `SELECT 1 / count(*) FROM nf_audit WHERE verb = 'apply-failed' AND actor = 'ann' AND object = 'Project/orders' AND reason LIKE 'stale%'`)
}
