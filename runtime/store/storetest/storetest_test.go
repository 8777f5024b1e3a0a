//go:build unix

package storetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/store"
	"nf/runtime/store/storetest"
)

func TestNewGivesEachTestItsOwnMigratedDatabase(t *testing.T) {
	t.Parallel()
	one, two := storetest.URL(t), storetest.URL(t)
	require.NotEqual(t, one, two)
	s := storetest.Open(t, one)
	install, err := s.Install(t.Context())
	require.NoError(t, err)
	require.Equal(t, storetest.Environment, install.Environment)
	status, err := s.SchemaStatus(t.Context())
	require.NoError(t, err)
	require.NoError(t, status.Fits(1))
}

func TestEmptyHasNoSchema(t *testing.T) {
	t.Parallel()
	_, err := storetest.Open(t, storetest.Empty(t)).SchemaStatus(t.Context())
	require.ErrorIs(t, err, store.ErrNoSchema)
}
