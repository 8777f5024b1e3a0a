package grpctask_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain sees that no call leaves a goroutine or a connection behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
