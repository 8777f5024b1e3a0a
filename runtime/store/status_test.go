package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/store"
	"nf/runtime/store/storetest"
)

func TestFiguresOfAFreshDatabaseLeaveBallastOut(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f, err := s.Fleet(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.Fleet{}, f)
	st, err := s.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, storetest.Environment, st.Install.Environment)
	require.Empty(t, st.Runners)

	_, err = apply(t.Context(), s, 0, declared(semaphore("erp", 3), "a"))
	require.NoError(t, err)
	sems, err := s.Semaphores(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, []store.SemaphoreState{{Namespace: "shared", Name: "erp", Permits: 3}}, sems)
}
