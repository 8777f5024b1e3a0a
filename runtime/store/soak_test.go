//go:build soak

package store_test

import "testing"

// The plan test at full size.
func TestSoakPlans(t *testing.T) { plansStayTheSame(t, 100_000) }

// Fifty real kills of a process that applies.
func TestSoakApplyKilledLeavesOldOrNew(t *testing.T) { killApplies(t, 50) }
