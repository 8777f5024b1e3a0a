//go:build soak

package store_test

import "testing"

// The plan test at full size.
func TestSoakPlans(t *testing.T) { plansStayTheSame(t, 100_000) }
