//go:build unix

package workertest_test

import (
	"testing"

	"nf/runtime/engine/enginetest"
	"nf/runtime/worker/workertest"
)

// A process may die before its loops have begun: what they find then is no failure of the test that killed it.
func TestProcessKilledAsItStartsFailsNoTest(t *testing.T) {
	t.Parallel()
	s := workertest.New(t, workertest.Options{}, enginetest.Workflow("w", enginetest.Wait("a", "1h")))
	for range 8 {
		s.Beside(workertest.Options{}).Die()
	}
}
